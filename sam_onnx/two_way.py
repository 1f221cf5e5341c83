"""The two-way transformer between a few prompt tokens and the 4096 positions of an image.

Attention is bilinear in tokens and positions: score = (t Wq) . (p Wk) = (t Wq Wk') . p. With few
tokens it is cheaper, and exact, to apply both projections to the tokens, so that no projection has
4096 rows: the positions enter each attention unprojected, and the heads are concatenated along the
token axis. For T tokens, H heads and width C this takes 4096 * C * H * T multiplications instead of
4096 * C * C / 2; they are equal at T = 16 (C = 256, H = 8).
"""

import numpy as np
import spox.opset.ai.onnx.v20 as op
from spox import Var

from sam_onnx.errors import CheckpointError
from sam_onnx.images import EMBEDDING_SIZE
from sam_onnx.nodes import constant, ints, layer_norm, linear, mlp, reshape, split_heads
from sam_onnx.tensors import Array, Tensors

HEADS = 8  # not visible in the tensors; 8 in every published SAM
POSITIONS = EMBEDDING_SIZE**2


class Attention:
    """Weights of one attention, split by head."""

    def __init__(self, tensors: Tensors, width: int) -> None:
        self.query = tensors.get("q_proj.weight", None, width)
        inner = self.query.shape[0]
        if inner % HEADS:
            raise CheckpointError(
                f"unexpected shape: expected q_proj.weight divisible by {HEADS}, got {inner}"
            )
        self.width, self.inner, self.dim = width, inner, inner // HEADS
        self.key = tensors.get("k_proj.weight", inner, width)
        self.value = tensors.get("v_proj.weight", inner, width)
        self.output = tensors.get("out_proj.weight", width, inner)
        self.query_bias, self.key_bias, self.value_bias = (
            tensors.get(f"{n}_proj.bias", inner) for n in "qkv"
        )
        self.output_bias = tensors.get("out_proj.bias", width)
        self.scale = np.float32(self.dim**-0.5)

    def flat(self, x: Var) -> Var:
        """Reshape (N, HEADS, T, dim) to (N, T, inner)."""
        return op.reshape(op.transpose(x, perm=[0, 2, 1, 3]), ints(0, 0, self.inner))

    def by_head(self, weight: Array) -> Array:
        """Reshape (inner, width) to (HEADS, dim, width)."""
        return np.ascontiguousarray(weight.reshape(HEADS, self.dim, self.width))


def self_attention(queries: Var, values: Var, absent: Var, tensors: Tensors, width: int) -> Var:
    """Apply self-attention to tokens (N, T, width); `absent` (N, 1, 1, T) is added to the
    scores.
    """
    a = Attention(tensors, width)
    query = split_heads(linear(queries, a.query.T * a.scale, a.query_bias * a.scale), HEADS)
    key = split_heads(linear(queries, a.key.T, a.key_bias), HEADS)
    value = split_heads(linear(values, a.value.T, a.value_bias), HEADS)
    scores = op.add(op.matmul(query, op.transpose(key, perm=[0, 1, 3, 2])), absent)
    return linear(a.flat(op.matmul(op.softmax(scores, axis=-1), value)), a.output.T, a.output_bias)


def tokens_to_image(queries: Var, positions: Var, placed: Var, tensors: Tensors, width: int) -> Var:
    """Let tokens (N, T, width) attend to positions (M, 4096, width); `placed` is positions plus
    their encoding.

    The key bias is left out: it adds one number to all scores of a query, which softmax ignores.

    The scores are computed as (N, 4096, T * HEADS) and then transposed: OpenVINO would run product,
    softmax and product of (N, T * HEADS, 4096) as one single-threaded operation, which takes 1.4
    times as long with two threads.
    """
    a = Attention(tensors, width)
    query = split_heads(linear(queries, a.query.T * a.scale, a.query_bias * a.scale), HEADS)
    query = reshape(op.matmul(query, constant(a.by_head(a.key))), 0, -1, width)
    scores = op.matmul(placed, op.transpose(query, perm=[0, 2, 1]))
    weights = op.softmax(op.transpose(scores, perm=[0, 2, 1]), axis=-1)
    read = op.reshape(op.matmul(weights, positions), ints(0, HEADS, -1, width))
    value = a.flat(op.matmul(read, constant(a.by_head(a.value).transpose(0, 2, 1))))
    return linear(value, a.output.T, a.output_bias + a.output @ a.value_bias)


def image_to_tokens(placed: Var, keys: Var, values: Var, absent: Var, tensors: Tensors) -> Var:
    """Let the positions (M, 4096, width), with their encoding, attend to the tokens; returns (N,
    4096, width).

    `absent` (N, 1, T, 1) is added to the scores. The output bias is divided among the heads'
    values, as the weights of each head sum to one.

    Tokens are rows and positions columns, so that the softmax works on whole rows: over a last axis
    of 7 tokens it takes as long as a product with all positions.
    """
    width = tensors.get("q_proj.weight", None, None).shape[1]
    a = Attention(tensors, width)
    key = split_heads(linear(keys, a.key.T * a.scale, a.key_bias * a.scale), HEADS)
    shift = op.add(op.matmul(key, constant(a.query_bias.reshape(HEADS, a.dim, 1))), absent)
    key = reshape(op.matmul(key, constant(a.by_head(a.query))), 0, -1, width)
    scores = op.add(
        op.matmul(key, op.transpose(placed, perm=[0, 2, 1])), op.reshape(shift, ints(0, -1, 1))
    )
    scores = op.reshape(scores, ints(0, HEADS, -1, POSITIONS))
    # Written out: ONNX Runtime transposes twice for a softmax over any axis but the last.
    powers = op.exp(op.sub(scores, op.reduce_max(scores, ints(2))))
    weights = op.reshape(op.div(powers, op.reduce_sum(powers, ints(2))), ints(0, -1, POSITIONS))
    value = split_heads(linear(values, a.value.T, a.value_bias), HEADS)
    value = op.add(
        op.matmul(value, constant(a.by_head(a.output.T))), constant(a.output_bias / HEADS)
    )
    return op.matmul(op.transpose(weights, perm=[0, 2, 1]), reshape(value, 0, -1, width))


def two_way_transformer(
    tokens: Var, positions: Var, encoding: Array, absent: Var, tensors: Tensors
) -> tuple[Var, Var]:
    """Let tokens (N, T, width) and positions (M, 4096, width) attend to each other; returns both
    with batch N.

    `encoding` (4096, width) encodes the positions; `absent` (N, 1, 1, T) is 0, very negative for
    tokens to ignore.
    """
    width = encoding.shape[1]
    place = constant(encoding[None])
    queries = tokens
    placed = op.add(positions, place)
    absent_rows = op.transpose(absent, perm=[0, 1, 3, 2])
    for index, layer in enumerate(tensors.under("layers").children()):
        attention = layer.under("self_attn")
        if index == 0:  # the first layer neither adds the prompts again nor keeps a residual
            queries = self_attention(queries, queries, absent, attention, width)
        else:
            queries = op.add(
                queries, self_attention(op.add(queries, tokens), queries, absent, attention, width)
            )
        queries = layer_norm(queries, layer.under("norm1"), width)
        with_prompts = op.add(queries, tokens)
        read = tokens_to_image(
            with_prompts, positions, placed, layer.under("cross_attn_token_to_image"), width
        )
        queries = layer_norm(op.add(queries, read), layer.under("norm2"), width)
        expanded = mlp(queries, layer.under("mlp"), ("lin1", "lin2"), width, op.relu)
        queries = layer_norm(op.add(queries, expanded), layer.under("norm3"), width)
        with_prompts = op.add(queries, tokens)
        read = image_to_tokens(
            placed, with_prompts, queries, absent_rows, layer.under("cross_attn_image_to_token")
        )
        positions = layer_norm(op.add(positions, read), layer.under("norm4"), width)
        placed = op.add(positions, place)
    last = tensors.under("final_attn_token_to_image")
    read = tokens_to_image(op.add(queries, tokens), positions, placed, last, width)
    return layer_norm(op.add(queries, read), tensors.under("norm_final_attn"), width), positions
