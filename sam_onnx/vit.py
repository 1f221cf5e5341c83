"""Segment Anything's image encoder: ViTDet (Li et al. 2022, arXiv:2203.16527; Kirillov et al. 2023,
2304.02643).

Every size is read from the tensors: width, depth, heads, windows, MLPs. A block whose relative
positions have 127 rows is global, as 2 * 64 - 1 offsets fit 64 positions; others attend within
windows, of 14 positions for 27 rows.

Relative positions are decomposed (Li et al. 2022, 2112.01526): a query q adds q Rh[y - y'] + q Rw[x
- x'] to its score for the key at (y', x'). Here q is lengthened by these numbers, one for each row
and each column of keys, and each key by a 1 at its row and at its column, so that one product
yields the sum without a table of the scores' size. As in `window_attention`, biases on keys and
values cost nothing, and padded keys and values are zero.
"""

import numpy as np
import spox.opset.ai.onnx.v20 as op
from spox import Var

from sam_onnx.errors import CheckpointError
from sam_onnx.hq import hq_features
from sam_onnx.images import DEVIATION, EMBEDDING, EMBEDDING_SIZE, as_tokens, neck
from sam_onnx.nodes import constant, ints, layer_norm, linear, mlp, reshape, split_heads
from sam_onnx.tensors import Array, Tensors
from sam_onnx.window_attention import Windows

PATCH_SIZE = 16
EPSILON = 1e-6  # of the encoder's layer norms


def vit(pixels: Var, tensors: Tensors) -> dict[str, Var]:
    """Return the embedding of centred pixels (N, 3, 1024, 1024), from all tensors of a checkpoint.

    Raises:
        CheckpointError: a tensor is missing or does not fit the others.
    """
    encoder = tensors.under("image_encoder")
    patches = encoder.under("patch_embed.proj")
    weight = patches.get("weight", None, 3, PATCH_SIZE, PATCH_SIZE)
    channels = weight.shape[0]
    size, bias = [PATCH_SIZE, PATCH_SIZE], patches.get("bias", channels)
    x = op.conv(
        pixels, constant(weight / DEVIATION), constant(bias), kernel_shape=size, strides=size
    )
    positions = encoder.get("pos_embed", 1, EMBEDDING_SIZE, EMBEDDING_SIZE, channels)
    tokens = op.add(as_tokens(x), constant(positions.reshape(1, -1, channels)))
    early: list[Var] = []
    for block in encoder.under("blocks").children():
        normalised = layer_norm(tokens, block.under("norm1"), channels, EPSILON)
        tokens = op.add(tokens, _attention(normalised, block.under("attn"), channels))
        normalised = layer_norm(tokens, block.under("norm2"), channels, EPSILON)
        tokens = op.add(
            tokens, mlp(normalised, block.under("mlp"), ("lin1", "lin2"), channels, op.gelu)
        )
        early += (
            [tokens]
            if len(block.get("attn.rel_pos_h", None, None)) == 2 * EMBEDDING_SIZE - 1
            else []
        )
    embedding = neck(tokens, encoder.under("neck"))
    return {EMBEDDING: embedding, **hq_features(embedding, [*early, tokens][0], tensors)}


def _attention(tokens: Var, tensors: Tensors, channels: int) -> Var:
    """Apply self-attention within windows, or one of all positions; tokens and the result are
    (N, 4096, channels).
    """
    offsets_y, offsets_x = (tensors.get(f"rel_pos_{axis}", None, None) for axis in "hw")
    window, dim = (len(offsets_y) + 1) // 2, offsets_y.shape[1]
    if offsets_y.shape != offsets_x.shape or len(offsets_y) % 2 == 0 or window > EMBEDDING_SIZE:
        raise CheckpointError(
            "unexpected shape: expected rel_pos_h and rel_pos_w of 2 * window - 1 rows for a"
            f" window of at most {EMBEDDING_SIZE}, got {offsets_y.shape} and {offsets_x.shape}"
        )
    qkv = tensors.get("qkv.weight", None, channels)
    heads = len(qkv) // (3 * dim)
    if not heads or len(qkv) % (3 * dim):
        raise CheckpointError(
            f"unexpected shape: expected qkv.weight to hold heads of {dim} rows, got {qkv.shape}"
        )
    query_bias, _, value_bias = np.split(tensors.get("qkv.bias", len(qkv)), 3)
    layout = Windows(EMBEDDING_SIZE, window)
    windows = layout.split(tokens, channels)

    def heads_of(weight: Array, bias: Array | None = None) -> Var:
        """Return (N * windows, heads, window**2, dim)."""
        return split_heads(linear(windows, weight.T, bias), heads)

    weights = np.split(qkv, 3)
    scale = dim**-0.5
    query, key = heads_of(weights[0] * scale, query_bias * scale), heads_of(weights[1])
    scores = op.matmul(
        _with_offsets(query, heads, offsets_y / scale, offsets_x / scale), _placed(key, window)
    )
    mixed = op.transpose(
        op.matmul(op.softmax(scores, axis=-1), heads_of(weights[2])), perm=[0, 2, 1, 3]
    )
    mixed = layout.merge(mixed, heads * dim)
    projection = tensors.get("proj.weight", channels, heads * dim)
    return linear(mixed, projection.T, tensors.get("proj.bias", channels) + projection @ value_bias)


def _with_offsets(query: Var, heads: int, offsets_y: Array, offsets_x: Array) -> Var:
    """Lengthen queries (B, heads, window**2, dim) by their scores for each row and each column
    of keys.
    """
    window, dim = (len(offsets_y) + 1) // 2, offsets_y.shape[1]
    grid = reshape(query, -1, window, window, dim)
    # Offsets from the query to the key, as (query's row or column, dim, key's row or column).
    distances = np.arange(window)[:, None] - np.arange(window) + window - 1
    rows = op.matmul(grid, constant(offsets_y[distances].transpose(0, 2, 1)))
    by_column = op.matmul(
        op.transpose(grid, perm=[0, 2, 1, 3]), constant(offsets_x[distances].transpose(0, 2, 1))
    )
    columns = op.transpose(by_column, perm=[0, 2, 1, 3])
    both = op.concat([rows, columns], axis=-1)
    return op.concat([query, reshape(both, -1, heads, window**2, 2 * window)], axis=-1)


def _placed(key: Var, window: int) -> Var:
    """Return keys (B, heads, window**2, dim) as (B, heads, dim + 2 * window, window**2), with 1
    at row and column.
    """
    y, x = np.divmod(np.arange(window**2), window)
    places = np.concatenate([np.eye(window)[y], np.eye(window)[x]], axis=1).T
    key = op.transpose(key, perm=[0, 1, 3, 2])
    shape = op.concat([op.slice(op.shape(key), ints(0), ints(2)), ints(*places.shape)], axis=0)
    return op.concat([key, op.expand(constant(places[None, None]), shape)], axis=2)
