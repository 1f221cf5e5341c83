"""The prompt encoder (Kirillov et al. 2023): tokens of points and box corners, and the embedding
of an earlier mask.
"""

import math

import numpy as np
import spox.opset.ai.onnx.v20 as op
from spox import Var

from sam_onnx.errors import CheckpointError
from sam_onnx.images import EMBEDDING_SIZE, FRAME_SIDE
from sam_onnx.nodes import LAYER_NORM_2D_EPSILON, constant, ints, layer_norm, linear
from sam_onnx.tensors import Array, Tensors
from sam_onnx.upscaling import blocks

MAX_WIDTH = 4096
"""Channels of an embedding, each of which has 4096 positions that are not in the file;
published: 256."""
POINT_KINDS = 4  # negative, positive, box top-left, box bottom-right
PADDING_POINT = -1.0  # the token that the official predictor appends
NO_POINT = -2.0  # no token: fills up shorter prompts of a batch


def embed_points(coords: Var, labels: Var, tensors: Tensors, width: int) -> Var:
    """Return point tokens (N, P, width) for `coords` (N, P, 2), x then y in the 1024-frame, and
    `labels` (N, P).

    The centre of a pixel is (x + 0.5, y + 0.5). The token is [sin(2 pi u G), cos(2 pi u G)] for u
    in [-1, 1] and a random matrix G, plus an embedding of the label; padding has only the
    embedding.
    """
    kinds = [tensors.under("not_a_point_embed").get("weight", 1, width)]
    kinds += [
        tensors.under("point_embeddings").under(kind).get("weight", 1, width)
        for kind in range(POINT_KINDS)
    ]
    label_values = np.arange(PADDING_POINT, POINT_KINDS, dtype=np.float32)
    label = op.unsqueeze(labels, ints(2))
    one_hot = op.cast(op.equal(label, constant(label_values)), to=np.float32)
    placed = op.cast(op.greater_or_equal(label, constant(0.0)), to=np.float32)
    centred = op.sub(op.mul(op.add(coords, constant(0.5)), constant(2 / FRAME_SIDE)), constant(1.0))
    angles = linear(centred, _frequencies(tensors, width), None)
    position = op.concat([op.sin(angles), op.cos(angles)], axis=-1)
    return op.add(op.mul(position, placed), linear(one_hot, np.concatenate(kinds), None))


def with_padding_points(coords: Var, labels: Var) -> tuple[Var, Var]:
    """Return `coords` and `labels` with a padding point in every prompt; SAM 2 has one also beside
    a box.

    They are one point longer unless all prompts have one.
    """
    padded = op.reduce_max(op.cast(op.equal(labels, constant(PADDING_POINT)), to=np.int64), ints(1))
    longer = op.sub(ints(1), op.reduce_min(padded, ints(0, 1), keepdims=False))
    added = op.where(op.cast(padded, to=np.bool_), constant(NO_POINT), constant(PADDING_POINT))
    labels = op.concat([labels, op.slice(added, ints(0), longer, ints(1))], axis=1)
    return op.pad(
        coords, op.concat([ints(0, 0, 0, 0), longer, ints(0)], axis=0), constant(0.0)
    ), labels


def image_positions(tensors: Tensors, width: int) -> Array:
    """Return the same encoding for the centres of the (64, 64) positions, (4096, width), row by
    row.
    """
    centres = (np.arange(EMBEDDING_SIZE) + 0.5) / EMBEDDING_SIZE * 2 - 1
    x, y = np.meshgrid(centres, centres)
    angles = np.stack([x, y], axis=-1).reshape(-1, 2) @ _frequencies(tensors, width).astype(
        np.float64
    )
    return np.asarray(np.concatenate([np.sin(angles), np.cos(angles)], axis=-1), dtype=np.float32)


def embed_masks(masks: Var, has_mask: Var, tensors: Tensors, width: int) -> Var:
    """Return the dense embedding (M, 4096, width) of `masks` (M, 1, 256, 256), or of no mask where
    `has_mask` is 0.

    If no prompt has a mask, the result is (M, 1, width): only the top left position is computed,
    and not used. That saves 6 % of a click. An `If` would be clearer, but then OpenVINO 2026.4
    computes wrong results in the run after the number of prompts changes.

    The two 2x2 convolutions of stride 2 read disjoint blocks, so they are matrix products once the
    pixels of a block are adjacent.
    """
    down = tensors.under("mask_downscaling")
    first = down.get("0.weight", None, 1, 2, 2)
    second = down.get("3.weight", None, first.shape[0], 2, 2)
    used = op.greater(has_mask, constant(0.5))
    any_used = op.reduce_max(op.cast(used, to=np.int64), ints(0))
    across = op.add(ints(1), op.mul(any_used, ints(EMBEDDING_SIZE - 1)))
    x = op.slice(masks, ints(0, 0), op.mul(across, ints(4, 4)), ints(2, 3))
    x = op.reshape(x, op.concat([ints(0), across, ints(2, 2), across, ints(2, 2)], axis=0))
    x = op.reshape(op.transpose(x, perm=[0, 1, 4, 2, 5, 3, 6]), ints(0, -1, 4, 4))
    x = _stage(
        linear(x, blocks(first).T, down.get("0.bias", first.shape[0])),
        down.under(1),
        first.shape[0],
    )
    x = op.reshape(x, ints(0, 0, 4 * first.shape[0]))
    x = _stage(
        linear(x, blocks(second).T, down.get("3.bias", second.shape[0])),
        down.under(4),
        second.shape[0],
    )
    last = down.get("6.weight", width, second.shape[0], 1, 1)
    embedded = linear(x, last[:, :, 0, 0].T, down.get("6.bias", width))
    none = constant(tensors.under("no_mask_embed").get("weight", 1, width)[None])
    return op.where(op.unsqueeze(used, ints(1, 2)), embedded, none)


def _stage(x: Var, norm: Tensors, channels: int) -> Var:
    return op.gelu(layer_norm(x, norm, channels, LAYER_NORM_2D_EPSILON))


def _frequencies(tensors: Tensors, width: int) -> Array:
    if width > MAX_WIDTH:
        raise CheckpointError(f"expected an embedding of at most {MAX_WIDTH} channels, got {width}")
    if width % 2:
        raise CheckpointError(f"unexpected shape: expected an even embedding width, got {width}")
    matrix = tensors.under("pe_layer").get("positional_encoding_gaussian_matrix", 2, width // 2)
    return np.asarray(2 * math.pi * matrix.astype(np.float64), dtype=np.float32)
