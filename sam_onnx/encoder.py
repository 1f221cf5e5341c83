"""The image encoder of a checkpoint: one module for each kind, between pixels and neck that all share."""

import numpy as np
import onnx
import spox
import spox.opset.ai.onnx.v20 as op
from spox import Tensor

from sam_onnx.images import IMAGE_SIZE, centred_pixels, neck
from sam_onnx.layouts import TINY_VIT, VIT, encoder_kind
from sam_onnx.nodes import finished_model
from sam_onnx.tensors import StateDict, Tensors
from sam_onnx.tiny_vit import tiny_vit
from sam_onnx.vit import vit

ENCODERS = {TINY_VIT: tiny_vit, VIT: vit}


def build_encoder(state: StateDict) -> onnx.ModelProto:
    """Build the encoder.

    Inputs `images` (N, 1024, 1024, 3) uint8 RGB, the image in the top left corner, and `sizes_hw` (N, 2) int32, the
    height and width of that image; pixels outside it are ignored. Output `image_embeddings` (N, 64, 64, C) float16,
    C = 256 for MobileSAM. float16 halves the bytes without changing the masks (mean IoU 0.9999). The channels are last,
    as the decoder needs them; PyTorch's (N, C, 64, 64) would be transposed twice.

    Raises:
        CheckpointError: a tensor is missing or does not fit the others.
    """
    tensors = Tensors(state).under("image_encoder")
    images = spox.argument(Tensor(np.uint8, ("N", IMAGE_SIZE, IMAGE_SIZE, 3)))
    sizes_hw = spox.argument(Tensor(np.int32, ("N", 2)))
    tokens, channels = ENCODERS[encoder_kind(state)](centred_pixels(images, sizes_hw), tensors)
    embeddings = op.cast(neck(tokens, tensors.under("neck"), channels), to=np.float16)
    inputs = {"images": images, "sizes_hw": sizes_hw}
    return finished_model("mobile_sam_encoder", inputs, {"image_embeddings": embeddings})
