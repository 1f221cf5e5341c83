"""The encoder and the decoder: MobileSAM's with given weights, or the built-in ones, which have the same tensors."""

import lzma

import onnx

from sam_onnx.decoder import build_decoder
from sam_onnx.encoder import build_encoder
from sam_onnx.sources import BUILTIN
from sam_onnx.tensors import StateDict


def build(state: StateDict) -> list[onnx.ModelProto]:
    """Build the encoder and the decoder.

    Raises:
        CheckpointError: a tensor is missing or does not fit.
    """
    return [build_encoder(state), build_decoder(state)]


def builtin() -> list[onnx.ModelProto]:
    """Read the built-in encoder and decoder."""
    return [onnx.load_model_from_string(lzma.decompress(path.read_bytes())) for path in BUILTIN]
