"""Up-sampling from the 64x64 positions to 256x256 pixels, and the pixels' two orders.

Pixels in block order lie as they are made: each position's 4x4 pixels, in 2x2 blocks of 2x2, follow
one another. Raster order is row by row.
"""

from collections.abc import Sequence

import numpy as np
import spox.opset.ai.onnx.v20 as op
from spox import Var

from sam_onnx.images import EMBEDDING_SIZE
from sam_onnx.nodes import LAYER_NORM_2D_EPSILON, layer_norm, linear, reshape, sizes_of
from sam_onnx.tensors import Array, Tensors

MASK_SIDE = 4 * EMBEDDING_SIZE


def upscale(
    positions: Var, tensors: Tensors, width: int, channels: int, features: Sequence[Var] = ()
) -> Var:
    """Up-sample (N, 4096, width) to pixels in block order, (N, 16384, 4 * channels): two transposed
    2x2 convolutions.

    They are matrix products. The activation after the second one is left to the caller. SAM 2 adds
    `features`, one for the second product and one for the first.
    """
    first = tensors.get("0.weight", width, None, 2, 2)
    middle = first.shape[1]
    second = tensors.get("3.weight", middle, channels, 2, 2)
    x = linear(positions, blocks(first), np.tile(tensors.get("0.bias", middle), 4))
    x = reshape(op.add(x, features[1]) if features else x, -1, 4 * EMBEDDING_SIZE**2, middle)
    x = op.gelu(layer_norm(x, tensors.under(1), middle, LAYER_NORM_2D_EPSILON))
    x = linear(x, blocks(second), np.tile(tensors.get("3.bias", channels), 4))
    return op.add(x, features[0]) if features else x


def in_block_order(features: Var) -> Var:
    """Return float16 features (1, size, size, channels) as float32 in block order, (1, size**2 /
    4, 4 * channels).
    """
    *_, size, channels = sizes_of(features)
    halvings = (size // EMBEDDING_SIZE).bit_length() - 1
    sides = [EMBEDDING_SIZE, *[2] * halvings]
    pairs: list[int] = []
    for axis in range(1, 2 + halvings):
        pairs += axis, axis + 1 + halvings
    x = op.transpose(
        reshape(features, 1, *sides, *sides, channels), perm=[0, *pairs, 3 + 2 * halvings]
    )
    return op.cast(reshape(x, 1, -1, 4 * channels), to=np.float32)


def in_raster_order(pixels: Var, channels: int) -> Var:
    """Return pixels in block order as (N, 256, 256, channels)."""
    x = reshape(pixels, -1, EMBEDDING_SIZE, EMBEDDING_SIZE, 2, 2, 2, 2, channels)
    return reshape(
        op.transpose(x, perm=[0, 1, 3, 5, 2, 4, 6, 7]), -1, MASK_SIDE, MASK_SIDE, channels
    )


def blocks(kernel: Array) -> Array:
    """Reshape (a, b, 2, 2) to (a, 2 * 2 * b), the pixels of a block outermost."""
    return np.ascontiguousarray(kernel.transpose(0, 2, 3, 1).reshape(kernel.shape[0], -1))
