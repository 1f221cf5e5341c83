"""Prompts, and the JSON bodies of requests."""

import base64
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Points = Sequence[float] | Sequence[Sequence[float]] | npt.NDArray[Any]
"""One point (x, y) or (N, 2) numbers, x then y, in pixels of the displayed image."""
Labels = Sequence[int] | npt.NDArray[Any]
"""(N,) labels: 0 negative, 1 positive, 2 box top-left, 3 box bottom-right."""
Box = Sequence[float] | npt.NDArray[Any]
"""x0, y0, x1, y1 in pixels of the displayed image."""

MASK_SHAPE = (256, 256)


@dataclass(frozen=True)
class Prompt:
    """One object to segment, given by points, a box, or both."""

    pos_coords: Points | None = None
    """One point (x, y) or (N, 2) points, x then y, in pixels of the displayed image."""
    labels: Labels | None = None
    """(N,) labels of `pos_coords`: 0 negative, 1 positive, 2 box top-left, 3 box bottom-right. None: all 1."""
    neg_coords: Points | None = None
    """One point or (N, 2) points outside the object."""
    box: Box | None = None
    """x0, y0, x1, y1 around the object."""
    mask_input: npt.NDArray[np.floating[Any]] | None = None
    """(256, 256) logits, the `low_res_mask` of an earlier result, to refine it."""


def request_fields(prompt: Prompt) -> dict[str, Any]:
    """Return the request fields of a prompt, without those that are None.

    Raises:
        ValueError: a field is not numeric, not finite, or has the wrong shape.
    """
    converters = {
        "pos_coords": _points,
        "labels": _labels,
        "neg_coords": _points,
        "box": _box,
        "mask_input": _mask_input,
    }
    given = {name: getattr(prompt, name) for name in converters}
    return {name: converters[name](name, value) for name, value in given.items() if value is not None}


def body_with_image_id(image_id: str, fields: Mapping[str, Any]) -> bytes:
    """Return a request body with an image id.

    Raises:
        ValueError: a field is not a finite number, bool, string or list of these.
    """
    return _encode({"image_id": image_id, **fields})


def body_with_image_file(file: bytes, fields: Mapping[str, Any]) -> bytes:
    """Return a request body with an image file. Raises as `body_with_image_id`."""
    # Base64 needs no escaping, so the file bypasses the JSON encoder, which would scan megabytes.
    other_fields = _encode(fields)[1:]
    comma = b"," if len(other_fields) > 1 else b""
    return b"".join([b'{"input_image":"', base64.b64encode(file), b'"', comma, other_fields])


def _encode(fields: Mapping[str, Any]) -> bytes:
    return f"{{{','.join(_member(name, value) for name, value in fields.items())}}}".encode()


def _member(name: str, value: object) -> str:
    try:
        return f"{json.dumps(name)}:{json.dumps(value, separators=(',', ':'), allow_nan=False, default=_to_python)}"
    except (ValueError, TypeError):
        expected = "finite numbers, bools, strings or lists of these"
        raise ValueError(f"{name}: expected {expected}, got {value!r}"[:300]) from None


def _to_python(value: object) -> Any:
    """Convert NumPy scalars to Python numbers."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not JSON serializable")


def _points(name: str, value: Any) -> list[Any]:
    expected = "one point (x, y) or (N, 2) numbers, x then y"
    array = _array(name, value, expected)
    array = array[np.newaxis] if array.shape == (2,) else array
    return _finite(name, array, expected, array.ndim == 2 and array.shape[1] == 2) if array.size else []


def _box(name: str, value: Any) -> list[Any]:
    expected = "four numbers, x0, y0, x1, y1"
    array = _array(name, value, expected)
    return _finite(name, array, expected, array.shape == (4,))


def _finite(name: str, array: npt.NDArray[Any], expected: str, shape_is_right: bool) -> list[Any]:
    """Convert an array to lists of finite floats."""
    if not shape_is_right:
        raise ValueError(f"{name}: expected {expected}, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: expected finite numbers, got NaN or infinity")
    numbers: list[Any] = array.astype(float).tolist()
    return numbers


def _labels(name: str, value: Any) -> list[int]:
    expected = "integers from 0 to 3, one per point of pos_coords"
    array = _array(name, value, expected)
    if array.ndim != 1 or not np.isfinite(array).all() or (array % 1).any():
        raise ValueError(f"{name}: expected {expected}, got {value!r}"[:300])
    return [int(label) for label in array]


def _mask_input(name: str, value: Any) -> str:
    """Return the logits as base64 of an .npy file."""
    expected = "the low_res_mask of an earlier result, (256, 256) floating-point logits"
    array = np.asarray(value)
    if array.shape != MASK_SHAPE or array.dtype.kind != "f":
        raise ValueError(f"{name}: expected {expected}, got {array.dtype} of shape {array.shape}")
    with np.errstate(over="ignore"):  # overflows to infinity, which is rejected below
        logits = array.astype("<f4", order="C")
    if not np.isfinite(logits).all():
        raise ValueError(f"{name}: expected finite float32 numbers, got NaN or infinity")
    file = io.BytesIO()
    np.save(file, logits)
    return base64.b64encode(file.getvalue()).decode()


def _array(name: str, value: Any, expected: str) -> npt.NDArray[Any]:
    """Convert the value to a numeric array."""
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"{name}: expected {expected}, got lists of different lengths") from None
    if array.size and array.dtype.kind not in "iuf":
        got = {"O": "values that are not numbers", "U": "strings"}.get(array.dtype.kind, f"{array.dtype.name} values")
        raise ValueError(f"{name}: expected {expected}, got {got}")
    return array
