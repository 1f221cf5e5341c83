"""The image encoder of a checkpoint: one module for each kind."""

import numpy as np
import onnx
import spox
import spox.opset.ai.onnx.v20 as op
from spox import Tensor

from sam_onnx.descriptor import EFFICIENT_VIT, HIERA, IMAGENET, REPVIT, TINY_VIT, VIT
from sam_onnx.efficientvit import efficientvit, frame_side
from sam_onnx.hiera import hiera
from sam_onnx.images import FRAME_SIDE, centred_pixels
from sam_onnx.layouts import encoder_kind
from sam_onnx.nodes import finished_model
from sam_onnx.repvit import repvit
from sam_onnx.tensors import StateDict, Tensors
from sam_onnx.tiny_vit import tiny_vit
from sam_onnx.vit import vit

ENCODERS = {EFFICIENT_VIT: efficientvit, TINY_VIT: tiny_vit, VIT: vit, HIERA: hiera, REPVIT: repvit}
"""Functions of centred pixels and a checkpoint's tensors; they return the embedding's tensors by
name, in float32."""


def build_encoder(state: StateDict, normalisation: str = IMAGENET) -> onnx.ModelProto:
    """Build the encoder.

    Inputs `images` (N, S, S, 3) uint8 RGB, the image in the top left corner, S = 1024 unless the
    kind has another side, and `sizes_hw` (N, 2) int32, the height and width of that image; pixels
    outside it are ignored. Output `image_embeddings` (N, 64, 64, C) float16, C = 256 for published
    models, and any others that the decoder needs. float16 halves the bytes without changing the
    masks (mean IoU 0.9999). The channels are last, as the decoder needs them; PyTorch's (N, C, 64,
    64) would be transposed twice.

    Raises:
        CheckpointError: a tensor is missing or does not fit the others.
    """
    kind, tensors = encoder_kind(state), Tensors(state)
    side = frame_side(tensors) if kind == EFFICIENT_VIT else FRAME_SIDE
    images = spox.argument(Tensor(np.uint8, ("N", side, side, 3)))
    sizes_hw = spox.argument(Tensor(np.int32, ("N", 2)))
    pixels = centred_pixels(images, sizes_hw, side, normalisation)
    embedding = {
        name: op.cast(value, to=np.float16)
        for name, value in ENCODERS[kind](pixels, tensors).items()
    }
    return finished_model("mobile_sam_encoder", {"images": images, "sizes_hw": sizes_hw}, embedding)
