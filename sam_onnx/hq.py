"""SAM-HQ (Ke et al. 2023, arXiv:2306.01567): a fifth mask token, whose mask is added to those of
Segment Anything.

mask = k . (conv2(gelu(norm(conv1(pixels)))) + features): both convolutions are 3x3, and the token
yields the kernel k. The second convolution and the product with k are linear, so k is applied to
the weights of the convolution first. Then it needs 9 products for each pixel, one for each
neighbour, instead of 9 * 32: a click takes 0.8 of the time.
"""

import numpy as np
import spox.opset.ai.onnx.v20 as op
from spox import Var

from sam_onnx.images import as_image, as_tokens
from sam_onnx.nodes import LAYER_NORM_2D_EPSILON, constant, layer_norm, linear, reshape, sizes_of
from sam_onnx.tensors import Tensors
from sam_onnx.upscaling import MASK_SIDE, in_raster_order, upscale

FEATURES = "hq_features"
"""Name of the tensor of an embedding that holds the features, (N, 256, 256, C)."""


def is_hq(tensors: Tensors) -> bool:
    """Return whether a checkpoint has SAM-HQ's tensors."""
    return tensors.under("mask_decoder").has("hf_token")


def hq_features(embedding: Var, early: Var, tensors: Tensors) -> dict[str, Var]:
    """Return the features by name, (N, 256, 256, C), or nothing if the checkpoint is not one of
    SAM-HQ.

    `embedding` is (N, 64, 64, width); `early` (N, 4096, channels) are the encoder's tokens after
    the first block of global attention, or TinyViT's after the last down-sampling by 2.
    """
    if not is_hq(tensors):
        return {}
    decoder = tensors.under("mask_decoder")
    width = sizes_of(embedding)[-1]
    size = len(decoder.get("embedding_maskfeature.3.bias", None))
    added = upscale(early, decoder.under("compress_vit_feat"), sizes_of(early)[-1], size)
    late = upscale(
        reshape(embedding, 0, -1, width), decoder.under("embedding_encoder"), width, size
    )
    return {FEATURES: in_raster_order(op.add(late, added), size)}


def hq_mask(pixels: Var, kernel: Var, features: Var, channels: int, decoder: Tensors) -> Var:
    """Return the logits (N, 1, 256, 256) of the added token.

    `pixels` (N, 65536, channels) are the up-sampled positions in block order, `kernel` is (N, 1,
    channels), and `features` are those of the image, (1, 256, 256, channels) float16.
    """
    layers = decoder.under("embedding_maskfeature")
    first = layers.get("0.weight", None, channels, 3, 3)
    middle = len(first)
    second = layers.get("3.weight", channels, middle, 3, 3)
    x = op.transpose(in_raster_order(pixels, channels), perm=[0, 3, 1, 2])
    x = op.conv(
        x,
        constant(first),
        constant(layers.get("0.bias", middle)),
        kernel_shape=[3, 3],
        pads=[1] * 4,
    )
    x = op.gelu(layer_norm(as_tokens(x), layers.under(1), middle, LAYER_NORM_2D_EPSILON))
    by_neighbour = reshape(linear(kernel, second.reshape(channels, -1), None), -1, middle, 9)
    neighbours = as_image(op.matmul(x, by_neighbour), MASK_SIDE)
    # A pixel's logit is the sum of the 9 products, each read at its neighbour.
    shifts = np.eye(9, dtype=np.float32).reshape(1, 9, 3, 3)
    mask = op.conv(neighbours, constant(shifts), kernel_shape=[3, 3], pads=[1] * 4)
    added = reshape(op.cast(features, to=np.float32), 1, -1, channels)
    added = op.matmul(added, op.transpose(kernel, perm=[0, 2, 1]))
    added = op.add(added, linear(kernel, layers.get("3.bias", channels)[:, None], None))
    return reshape(op.add(reshape(mask, 0, -1, 1), added), 0, 1, MASK_SIDE, MASK_SIDE)
