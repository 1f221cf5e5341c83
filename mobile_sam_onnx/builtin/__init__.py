"""The built-in model: a small promptable segmenter trained on generated scenes, with the interface of MobileSAM."""

import numpy as np

from mobile_sam_onnx.builtin.decoder import build_decoder
from mobile_sam_onnx.builtin.encoder import build_encoder
from mobile_sam_onnx.builtin.layers import State
from mobile_sam_onnx.tensors import StateDict

__all__ = ["as_float32", "build_decoder", "build_encoder", "is_builtin"]


def is_builtin(state: StateDict) -> bool:
    """Return whether these are weights of the built-in architecture, by their keys."""
    return bool(state) and all(key.startswith(("encoder.", "decoder.")) for key in state)


def as_float32(state: StateDict) -> State:
    """Return the tensors as float32, which the graphs need; the file has float16."""
    return {name: values.astype(np.float32) for name, values in state.items()}
