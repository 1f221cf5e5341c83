"""Prompts, and the JSON bodies of requests."""

import base64
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mobile_sam_client._model import MASK_SHAPE

Points = Sequence[float] | Sequence[Sequence[float]] | npt.NDArray[Any]
"""One point (x, y) or (N, 2) numbers, x then y, in pixels of the displayed image."""
Labels = Sequence[int] | npt.NDArray[Any]
"""(N,) labels: 0 negative, 1 positive, 2 box top-left, 3 box bottom-right."""
Box = Sequence[float] | npt.NDArray[Any]
"""x0, y0, x1, y1 in pixels of the displayed image."""
Region = Box | str
"""The part of an image to encode, or `auto` for a part around all prompts."""


@dataclass(frozen=True)
class Prompt:
    """One object to segment, given by points, a box, or both."""

    pos_coords: Points | None = None
    """One point (x, y) or (N, 2) points, x then y, in pixels of the displayed image."""
    labels: Labels | None = None
    """(N,) labels of `pos_coords`: 0 negative, 1 positive, 2 box top-left, 3 box bottom-right.
    None: all 1."""
    neg_coords: Points | None = None
    """One point or (N, 2) points outside the object."""
    box: Box | None = None
    """x0, y0, x1, y1 around the object."""
    mask_input: npt.NDArray[np.floating[Any]] | None = None
    """(256, 256) logits, the `low_res_mask` of an earlier result, to refine it."""


POINTS = "one point (x, y) or (N, 2) numbers, x then y"
EXPECTED = {
    "pos_coords": POINTS,
    "labels": "integers from 0 to 3, one per point of pos_coords",
    "neg_coords": POINTS,
    "box": "four numbers, x0, y0, x1, y1",
    "mask_input": f"the low_res_mask of an earlier result, {MASK_SHAPE} floating-point logits",
}


def request_fields(prompt: Prompt, name: str = "") -> dict[str, Any]:
    """Return the request fields of a prompt, without those that are None.

    Args:
        prompt: the prompt.
        name: name of the prompt in errors, such as `prompts[1]`; empty if it is the only one.

    Raises:
        ValueError: a field is not numeric, not finite, or has the wrong shape.
        TypeError: the argument is not a prompt.
    """
    if not isinstance(prompt, Prompt):
        raise TypeError(f"{name}: expected a Prompt, got {type(prompt).__name__}")
    fields: dict[str, Any] = {}
    for field in EXPECTED:
        value = getattr(prompt, field)
        if value is None:
            continue
        try:
            fields[field] = _mask_input(value) if field == "mask_input" else _numbers(field, value)
        except ValueError as error:
            path = f"{name}.{field}" if name else field
            raise ValueError(f"{path}: {error}") from None
    return fields


def region_field(region: Region) -> Region:
    """Return the request field of a region. Raises `ValueError`."""
    if isinstance(region, str) and region == "auto":
        return region
    try:
        return _numbers("box", region)
    except ValueError as error:
        raise ValueError(f'region: {error}, or "auto"') from None


def request_body(image: str | bytes, fields: Mapping[str, Any]) -> bytes:
    """Return a request body in JSON.

    Args:
        image: the image's id, or its file.
        fields: the other fields.

    Raises:
        ValueError: a field is not a finite number, bool, string or list of these.
    """
    others = "".join(f",{_member(name, value)}" for name, value in fields.items()).encode()
    if isinstance(image, str):
        return b"".join([b"{", _member("image_id", image).encode(), others, b"}"])
    # Base64 needs no escaping, so the file bypasses the JSON encoder, which would scan megabytes.
    return b"".join([b'{"input_image":"', base64.b64encode(image), b'"', others, b"}"])


def _member(name: str, value: object) -> str:
    """Return a member of a JSON object."""
    try:
        text = json.dumps(value, separators=(",", ":"), allow_nan=False, default=_to_python)
    except (ValueError, TypeError):
        expected = "finite numbers, bools, strings or lists of these"
        raise ValueError(f"{name}: expected {expected}, got {value!r}"[:300]) from None
    return f"{json.dumps(name)}:{text}"


def _to_python(value: object) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not JSON serializable")


def _numbers(field: str, value: Any) -> list[Any]:
    """Return points, labels or a box as lists."""
    expected = EXPECTED[field]
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"expected {expected}, got lists of different lengths") from None
    if array.size and array.dtype.kind not in "iuf":
        names_by_kind = {"O": "values that are not numbers", "U": "strings"}
        got = names_by_kind.get(array.dtype.kind, f"{array.dtype.name} values")
        raise ValueError(f"expected {expected}, got {got}")
    if field == "labels":
        if array.ndim != 1 or not np.isfinite(array).all() or (array % 1).any():
            raise ValueError(f"expected {expected}, got {value!r}"[:292])
        return [int(label) for label in array]
    if field == "box":
        fits = array.shape == (4,)
    else:
        if not array.size:
            return []
        if array.shape == (2,):  # one point
            array = array[np.newaxis]
        fits = array.ndim == 2 and array.shape[1] == 2
    if not fits:
        raise ValueError(f"expected {expected}, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("expected finite numbers, got NaN or infinity")
    numbers: list[Any] = array.astype(float).tolist()
    return numbers


def _mask_input(value: Any) -> str:
    """Return the logits as base64 of an .npy file."""
    array = np.asarray(value)
    if array.shape != MASK_SHAPE or array.dtype.kind != "f":
        expected = EXPECTED["mask_input"]
        raise ValueError(f"expected {expected}, got {array.dtype} of shape {array.shape}")
    with np.errstate(over="ignore"):  # overflows to infinity, which is rejected below
        logits = array.astype("<f4", order="C")
    if not np.isfinite(logits).all():
        raise ValueError("expected finite float32 numbers, got NaN or infinity")
    file = io.BytesIO()
    np.save(file, logits)
    return base64.b64encode(file.getvalue()).decode()
