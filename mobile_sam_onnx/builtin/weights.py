"""Where the built-in weights lie, and how they are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mobile_sam_onnx.array_files import read_safetensors
from mobile_sam_onnx.sources import BUILTIN
from mobile_sam_onnx.tensors import StateDict

WEIGHTS = BUILTIN
State = dict[str, NDArray[np.float32]]


def load_weights(path: Path = WEIGHTS) -> State:
    """Tensor name to float32 array, as `build_encoder` and `build_decoder` take them; the file holds float16.

    Raises:
        CheckpointError: a damaged file.
    """
    return as_float32(read_safetensors(path))


def holds(state: StateDict) -> bool:
    """Whether these are weights of the built-in kind, by their keys."""
    return bool(state) and all(key.startswith(("encoder.", "decoder.")) for key in state)


def as_float32(state: StateDict) -> State:
    """The same tensors in float32."""
    return {name: values.astype(np.float32) for name, values in state.items()}
