"""Checked access to a state dict, by name and shape."""

import re
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sam_onnx.errors import CheckpointError

Array: TypeAlias = npt.NDArray[np.float32]
StateDict: TypeAlias = Mapping[str, npt.NDArray[np.generic]]


class Tensors:
    """View of the tensors below a prefix, e.g. `image_encoder.layers.0.`."""

    def __init__(self, state: StateDict, prefix: str = "") -> None:
        self._state = state
        self._prefix = prefix

    def under(self, name: str | int) -> "Tensors":
        """Return the view one level down."""
        return Tensors(self._state, f"{self._prefix}{name}.")

    def has(self, name: str) -> bool:
        """Return whether a tensor has this name or lies below it."""
        key = f"{self._prefix}{name}"
        return key in self._state or any(other.startswith(f"{key}.") for other in self._state)

    def children(self) -> "list[Tensors]":
        """Return the views of the numbered children, from 0 to the highest number.

        Raises:
            CheckpointError: there are none.
        """
        # Published networks have at most 48.
        pattern = re.compile(re.escape(self._prefix) + r"([0-9]{1,2})\.")
        numbers = [int(match.group(1)) for match in map(pattern.match, self._state) if match]
        if not numbers:
            raise CheckpointError(
                f"missing key: expected {self._prefix}0..., got no such key in the checkpoint"
            )
        return [self.under(number) for number in range(max(numbers) + 1)]

    def get(self, name: str, *shape: int | None) -> Array:
        """Return a tensor as contiguous float32. `None` in `shape` accepts any positive size.

        Raises:
            CheckpointError: the tensor is missing, has another shape, or has a value that is not
                finite.
        """
        key = f"{self._prefix}{name}"
        if key not in self._state:
            raise CheckpointError(
                f"missing key: expected {key} {_text(shape)}, got no such key in the checkpoint"
            )
        value = self._state[key]
        fits = value.ndim == len(shape) and all(
            size > 0 and want in (None, size) for want, size in zip(shape, value.shape, strict=True)
        )
        if not fits:
            raise CheckpointError(
                f"unexpected shape: expected {key} {_text(shape)}, got {_text(value.shape)}"
            )
        if value.dtype.kind not in "fiu":
            raise CheckpointError(
                f"unexpected type: expected {key} to hold numbers, got {value.dtype}"
            )
        with np.errstate(over="ignore"):  # infinity, which the next lines name
            array = np.ascontiguousarray(value, dtype=np.float32)
        if not np.isfinite(array).all():
            raise CheckpointError(
                f"unexpected value: expected {key} to be finite, got NaN or infinity"
            )
        return array


def _text(shape: tuple[int | None, ...]) -> str:
    return "(" + ", ".join("any" if size is None else str(size) for size in shape) + ")"
