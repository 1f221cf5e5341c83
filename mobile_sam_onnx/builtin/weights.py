"""Reading of the built-in weights."""

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
    """Return the tensors as float32, for `build_encoder` and `build_decoder`; the file has float16.

    Raises:
        CheckpointError: the file is damaged.
    """
    return as_float32(read_safetensors(path))


def is_builtin(state: StateDict) -> bool:
    """Return whether these are weights of the built-in architecture, by their keys."""
    return bool(state) and all(key.startswith(("encoder.", "decoder.")) for key in state)


def as_float32(state: StateDict) -> State:
    """Return the tensors as float32."""
    return {name: values.astype(np.float32) for name, values in state.items()}
