"""The encoder and the decoder of a checkpoint, or the built-in ones, with their descriptor."""

import lzma
from dataclasses import replace

import onnx

from sam_onnx.decoder import build_decoder
from sam_onnx.descriptor import HQ, HQ_ONLY, MEMBERS, RECIPES, Descriptor
from sam_onnx.encoder import build_encoder
from sam_onnx.errors import CheckpointError
from sam_onnx.hq import is_hq
from sam_onnx.layouts import encoder_kind
from sam_onnx.sources import BUILTIN
from sam_onnx.tensors import StateDict, Tensors

Networks = tuple[Descriptor, list[onnx.ModelProto]]
"""The descriptor, the encoder and the decoder."""


def build(state: StateDict, recipe: str = "") -> Networks:
    """Build the networks of a checkpoint; `recipe` is a word of `RECIPES`, or empty.

    Raises:
        CheckpointError: a tensor is missing or does not fit, or the recipe is for other weights.
    """
    kind = encoder_kind(state)
    hq = is_hq(Tensors(state))
    fields = MEMBERS[kind] | (HQ if hq else {}) | RECIPES.get(recipe, {})
    descriptor = Descriptor(**{"architecture": kind, **fields})
    if descriptor.architecture != kind:
        raise CheckpointError(
            f"{recipe}: expected weights of a {descriptor.architecture} encoder, got a {kind} one"
        )
    if descriptor.single_mask == HQ_ONLY and not hq:
        raise CheckpointError(
            f"{recipe}: expected weights of SAM-HQ, got none of its tensors (mask_decoder.hf_token)"
        )
    encoder = build_encoder(state, descriptor.normalisation)
    decoder = build_decoder(state, descriptor.single_mask)
    return _completed(descriptor, encoder), [encoder, decoder]


def builtin() -> Networks:
    """Read the built-in networks, too small for OpenVINO: its overhead exceeds its gain."""
    models = [onnx.load_model_from_string(lzma.decompress(path.read_bytes())) for path in BUILTIN]
    return _completed(Descriptor("builtin", engines=["onnxruntime"]), models[0]), models


def _completed(descriptor: Descriptor, encoder: onnx.ModelProto) -> Descriptor:
    """Return the descriptor with the tensors of an encoder."""
    shapes = {
        value.name: [each.dim_value for each in value.type.tensor_type.shape.dim]
        for value in (*encoder.graph.input, *encoder.graph.output)
    }
    embedding = {value.name: [1, *shapes[value.name][1:]] for value in encoder.graph.output}
    return replace(descriptor, side=shapes["images"][1], embedding=embedding)
