"""Both ends that all image encoders share: the pixels that they get, and the neck that makes the
embedding.
"""

import numpy as np
import spox.opset.ai.onnx.v20 as op
from spox import Var

from sam_onnx.descriptor import MIN_MAX
from sam_onnx.nodes import (
    LAYER_NORM_2D_EPSILON,
    constant,
    conv_batch_norm,
    convolution,
    fold_batch_norm,
    ints,
    layer_norm,
    linear,
    reshape,
    sizes_of,
)
from sam_onnx.tensors import Array, Tensors

FRAME_SIDE = 1024
STEM_STRIDE = 4
EMBEDDING_SIZE = 64
BICUBIC = -0.75  # torch's coefficient
EMBEDDING = "image_embeddings"
"""Name of the tensor that every embedding has, (N, 64, 64, C)."""
HIGH_RES_FEATURES = ("high_res_features_0", "high_res_features_1")
"""Names of the other tensors of SAM 2's embeddings, (N, 256, 256, C / 8) and (N, 128, 128, C /
4)."""
PIXEL_MEAN = (123.675, 116.28, 103.53)
PIXEL_STD = (58.395, 57.12, 57.375)
DEVIATION = np.reshape(PIXEL_STD, (1, 3, 1, 1)).astype(np.float32)
"""Divisor of the weights of a convolution of centred pixels."""


def centred_pixels(images: Var, sizes_hw: Var, side: int, normalisation: str) -> Var:
    """Return (N, 3, side, side) float32: pixels minus their mean, 0 outside the image; not divided
    by the deviation.

    Min-max normalisation yields values that are in [0, 1] once they are divided by the deviation.
    """
    # Transposed before the cast, while it is a quarter of the bytes.
    pixels = op.cast(op.transpose(images, perm=[0, 3, 1, 2]), to=np.float32)
    if normalisation == MIN_MAX:
        low, high = op.reduce_min(pixels, ints(1, 2, 3)), op.reduce_max(pixels, ints(1, 2, 3))
        unit = op.div(op.sub(pixels, low), op.max([op.sub(high, low), constant(1.0)]))
        centred = op.mul(unit, constant(DEVIATION))
    else:
        centred = op.sub(pixels, constant(np.reshape(PIXEL_MEAN, (1, 3, 1, 1)).astype(np.float32)))
    positions = np.arange(side, dtype=np.int32)
    sizes = op.unsqueeze(sizes_hw, ints(2, 3))
    height = op.slice(sizes, ints(0), ints(1), ints(1))
    width = op.slice(sizes, ints(1), ints(2), ints(1))
    inside = op.and_(
        op.less(op.const(positions.reshape(1, 1, side, 1)), height),
        op.less(op.const(positions.reshape(1, 1, 1, side)), width),
    )
    return op.where(inside, centred, constant(0.0))


def stem(pixels: Var, first: Tensors, second: Tensors) -> Var:
    """Apply two convolutions to centred pixels (N, 3, S, S); return (N, channels, S / 4, S / 4)."""
    weight, bias = fold_batch_norm(first, None, 3, 3, 3)
    x = op.gelu(convolution(pixels, weight / DEVIATION, bias, stride=2))
    return conv_batch_norm(x, second, 3, stride=2)


def as_tokens(x: Var) -> Var:
    """Reshape (N, channels, H, W) to (N, H * W, channels).

    With four dimensions OpenVINO would use a convolution's memory layout for the tokens, and
    reorder them for every product; with three the encoder takes 0.86 of the time.
    """
    return reshape(op.transpose(x, perm=[0, 2, 3, 1]), 0, -1, sizes_of(x)[0])


def as_image(tokens: Var, size: int) -> Var:
    """Reshape (N, size**2, channels) to (N, channels, size, size)."""
    return op.transpose(reshape(tokens, 0, size, size, -1), perm=[0, 3, 1, 2])


def neck(tokens: Var, tensors: Tensors) -> Var:
    """Project tokens (N, 4096, channels) to the embedding, (N, 64, 64, C)."""
    project = tensors.get("0.weight", None, sizes_of(tokens)[-1], 1, 1)
    width = project.shape[0]
    tokens = linear(tokens, project[:, :, 0, 0].T, None)
    tokens = layer_norm(tokens, tensors.under(1), width, LAYER_NORM_2D_EPSILON)
    mixing = constant(tensors.get("2.weight", width, width, 3, 3))
    y = op.conv(as_image(tokens, EMBEDDING_SIZE), mixing, kernel_shape=[3, 3], pads=[1] * 4)
    tokens = layer_norm(as_tokens(y), tensors.under(3), width, LAYER_NORM_2D_EPSILON)
    return reshape(tokens, 0, EMBEDDING_SIZE, EMBEDDING_SIZE, width)


def bicubic(before: int, after: int) -> Array:
    """Return the matrix (after, before) of torch's bicubic interpolation without aligned
    corners.
    """
    places = (np.arange(after) + 0.5) * before / after - 0.5
    nearest = np.floor(places).astype(int)
    matrix = np.zeros((after, before))
    for offset in range(-1, 3):
        t = np.abs(places - nearest - offset)
        inner = ((BICUBIC + 2) * t - (BICUBIC + 3)) * t**2 + 1
        outer = BICUBIC * (((t - 5) * t + 8) * t - 4)
        columns = np.clip(nearest + offset, 0, before - 1)
        np.add.at(matrix, (np.arange(after), columns), np.where(t <= 1, inner, outer))
    return matrix.astype(np.float32)
