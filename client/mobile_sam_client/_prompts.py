"""What to find on an image, as it stands in a request."""

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
"""(N,) of 0 negative, 1 positive, 2 box top-left, 3 box bottom-right."""
Box = Sequence[float] | npt.NDArray[Any]
"""x0, y0, x1, y1 in pixels of the displayed image."""

MASK_SHAPE = (256, 256)


@dataclass(frozen=True)
class Prompt:
    """One object to find, described by clicks, a box, or both."""

    pos_coords: Points | None = None
    """(N, 2) numbers: points on the object, x then y, in pixels of the displayed image."""
    labels: Labels | None = None
    """One per point of `pos_coords`: 0 negative, 1 positive, 2 box top-left, 3 box bottom-right. None: all 1."""
    neg_coords: Points | None = None
    """(N, 2) numbers: points that are not on the object."""
    box: Box | None = None
    """x0, y0, x1, y1 around the object."""
    mask_input: npt.NDArray[np.floating[Any]] | None = None
    """(256, 256) logits: the `low_res_mask` of an earlier answer, to refine it."""


def fields_of(prompt: Prompt) -> dict[str, Any]:
    """The members of a request that describe one object; what is None is left out.

    Raises:
        ValueError: not numbers, not finite, or of another shape.
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
    """Lists of finite floats.

    Args:
        name: of the field, for the error.
        value: what the caller gave.
        expected: what it should be, for the error.
        shape: of that; None: any length.
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
    expected = "whole numbers of 0, 1, 2 or 3, one per point of pos_coords"
    array = _array("labels", value, expected)
    if array.ndim != 1 or not np.isfinite(array).all() or (array % 1).any():
        raise ValueError(f"labels: expected {expected}, got {value!r}"[:300])
    return [int(label) for label in array]


def _mask_input(value: Any) -> str | None:
    """Base64 of a NumPy file."""
    if value is None:
        return None
    expected = "a low_res_mask of an earlier answer, (256, 256) floating-point logits"
    array = np.asarray(value)
    if array.shape != MASK_SHAPE or array.dtype.kind != "f":
        raise ValueError(f"mask_input: expected {expected}, got {array.dtype} of shape {array.shape}")
    with np.errstate(over="ignore"):  # it becomes infinity, which is told below
        logits = array.astype("<f4", order="C")
    if not np.isfinite(logits).all():
        raise ValueError("mask_input: expected finite float32 numbers, got NaN or infinity")
    file = io.BytesIO()
    np.save(file, logits)
    return base64.b64encode(file.getvalue()).decode()


def _array(name: str, value: Any, expected: str) -> npt.NDArray[Any]:
    """The value as an array of numbers."""
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"{name}: expected {expected}, got lists of different lengths") from None
    if array.size and array.dtype.kind not in "iuf":
        got = {"O": "what is no number", "U": "texts"}.get(array.dtype.kind, f"{array.dtype.name} values")
        raise ValueError(f"{name}: expected {expected}, got {got}")
    return array
