"""Prompts and their request fields."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Points = Sequence[Sequence[float]] | npt.NDArray[Any]
"""(N, 2) numbers, x then y, in pixels of the displayed image."""
Labels = Sequence[int] | npt.NDArray[Any]
"""(N,) labels: 0 negative, 1 positive, 2 box top-left, 3 box bottom-right."""
Box = Sequence[float] | npt.NDArray[Any]
"""x0, y0, x1, y1 in pixels of the displayed image."""

MASK_SHAPE = (256, 256)


@dataclass(frozen=True)
class Prompt:
    """One object to segment, given by points, a box, or both."""

    pos_coords: Points | None = None
    """(N, 2) points, x then y, in pixels of the displayed image."""
    labels: Labels | None = None
    """(N,) labels of `pos_coords`: 0 negative, 1 positive, 2 box top-left, 3 box bottom-right. None: all 1."""
    neg_coords: Points | None = None
    """(N, 2) points outside the object."""
    box: Box | None = None
    """x0, y0, x1, y1 around the object."""
    mask_input: npt.NDArray[np.floating[Any]] | None = None
    """(256, 256) logits, the `low_res_mask` of an earlier result, to refine it."""


def request_fields(prompt: Prompt) -> dict[str, Any]:
    """Return the request fields of a prompt, without those that are None.

    Raises:
        ValueError: a field is not numeric, not finite, or has the wrong shape.
    """
    fields = {
        "pos_coords": _numbers("pos_coords", prompt.pos_coords, "(N, 2) numbers, x then y", (None, 2)),
        "labels": _labels(prompt.labels),
        "neg_coords": _numbers("neg_coords", prompt.neg_coords, "(N, 2) numbers, x then y", (None, 2)),
        "box": _numbers("box", prompt.box, "four numbers, x0, y0, x1, y1", (4,)),
        "mask_input": _mask_input(prompt.mask_input),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _numbers(name: str, value: Any, expected: str, shape: tuple[int | None, ...]) -> list[Any] | None:
    """Convert a field to lists of finite floats.

    Args:
        name: field name for the error.
        value: value given by the caller.
        expected: description of the expected value for the error.
        shape: expected shape; None for any length.
    """
    if value is None:
        return None
    array = _array(name, value, expected)
    if not array.size and len(shape) > 1:
        return []
    if array.ndim != len(shape) or any(side not in {None, got} for side, got in zip(shape, array.shape, strict=True)):
        raise ValueError(f"{name}: expected {expected}, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: expected finite numbers, got NaN or infinity")
    numbers: list[Any] = array.astype(float).tolist()
    return numbers


def _labels(value: Labels | None) -> list[int] | None:
    if value is None:
        return None
    expected = "integers from 0 to 3, one per point of pos_coords"
    array = _array("labels", value, expected)
    if array.ndim != 1 or not np.isfinite(array).all() or (array % 1).any():
        raise ValueError(f"labels: expected {expected}, got {value!r}"[:300])
    return [int(label) for label in array]


def _mask_input(value: Any) -> str | None:
    """Return the logits as base64 of an .npy file."""
    if value is None:
        return None
    expected = "the low_res_mask of an earlier result, (256, 256) floating-point logits"
    array = np.asarray(value)
    if array.shape != MASK_SHAPE or array.dtype.kind != "f":
        raise ValueError(f"mask_input: expected {expected}, got {array.dtype} of shape {array.shape}")
    with np.errstate(over="ignore"):  # overflows to infinity, which is rejected below
        logits = array.astype("<f4", order="C")
    if not np.isfinite(logits).all():
        raise ValueError("mask_input: expected finite float32 numbers, got NaN or infinity")
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
