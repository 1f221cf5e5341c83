"""TinyViT's window attention, rearranged so that padding and biases cost nothing.

The original pads the tokens with zeros, partitions them into windows, and then normalises and
projects them. Here the tokens are normalised first, and then padded and partitioned. The results
are the same, because
- the norm's shift folds into the projection's bias: (g * n + b) W + c = g * n W + (b W + c);
- a bias on the keys adds the same number to every score of a query, which softmax ignores;
- a bias on the values passes through attention unchanged, as weights sum to one, and folds into the
  output projection;
- the results of padded queries are cropped away.
So padded keys and values are exactly zero, and only the queries keep a bias.

The windows are the first of four dimensions: then OpenVINO recognises the attention and runs it as
one operation, with which the encoder takes 0.9 of the time in bfloat16.
"""

import math

import numpy as np
import spox.opset.ai.onnx.v20 as op
from spox import Var

from sam_onnx.errors import CheckpointError
from sam_onnx.nodes import LAYER_NORM_EPSILON, constant, ints, linear, reshape, split_heads
from sam_onnx.tensors import Array, Tensors

MAX_BIASES = 2**21
"""Expanded biases of one attention, which grow with the square of the values in the file;
published: 192,080."""


def window_attention(tokens: Var, tensors: Tensors, channels: int, size: int) -> Var:
    """Apply self-attention within square windows; `tokens` and the result are (N, size**2,
    channels).

    The biases match the official model after `.eval()`, which its README calls after loading.
    Without that call it would run with the zeros of a new model.
    """
    table = tensors.get("attention_biases", None, None)
    heads, window = table.shape[0], math.isqrt(table.shape[1])
    if window**2 != table.shape[1]:
        raise CheckpointError(
            f"unexpected shape: expected attention_biases (heads, window**2), got {table.shape}"
        )
    if heads * window**4 > MAX_BIASES:
        raise CheckpointError(
            f"expected at most {MAX_BIASES} biases of an attention, got {heads} x {window}**4"
        )
    projection = tensors.get("proj.weight", channels, None)
    if projection.shape[1] % heads:
        raise CheckpointError(
            f"unexpected shape: expected proj.weight divisible by {heads}, got {projection.shape}"
        )
    value_dim = projection.shape[1] // heads
    qkv = tensors.get("qkv.weight", None, channels)
    key_dim = (qkv.shape[0] // heads - value_dim) // 2
    if key_dim < 1 or qkv.shape[0] != heads * (2 * key_dim + value_dim):
        raise CheckpointError(
            f"unexpected shape: expected qkv.weight to hold {heads} heads, got {qkv.shape}"
        )
    shift = tensors.get("norm.bias", channels)
    bias = tensors.get("qkv.bias", qkv.shape[0]) + qkv @ shift
    # Rows are laid out per head as [query, key, value].
    weights = np.split(qkv.reshape(heads, -1, channels), [key_dim, 2 * key_dim], axis=1)
    shifts = np.split(bias.reshape(heads, -1), [key_dim, 2 * key_dim], axis=1)
    scale = key_dim**-0.5

    weight, zeros = (
        constant(tensors.get("norm.weight", channels)),
        constant(np.zeros(channels, np.float32)),
    )
    normalised = op.layer_normalization(tokens, weight, zeros, axis=-1, epsilon=LAYER_NORM_EPSILON)[
        0
    ]
    layout = Windows(size, window)
    windows = layout.split(normalised, channels)

    def heads_of(weight: Array, bias: Array | None) -> Var:
        """Return (N * windows, heads, window**2, dim) for `weight` (heads, dim, channels)."""
        return split_heads(linear(windows, weight.reshape(-1, channels).T, bias), heads)

    query = heads_of(weights[0] * scale, shifts[0].reshape(-1) * scale)
    key, value = heads_of(weights[1], None), heads_of(weights[2], None)
    scores = op.add(
        op.matmul(query, op.transpose(key, perm=[0, 1, 3, 2])),
        constant(relative_bias(table, window)),
    )
    mixed = op.transpose(op.matmul(op.softmax(scores, axis=-1), value), perm=[0, 2, 1, 3])
    mixed = layout.merge(mixed, heads * value_dim)
    output_bias = tensors.get("proj.bias", channels) + projection @ shifts[2].reshape(-1)
    return linear(mixed, projection.T, output_bias)


def relative_bias(table: Array, window: int) -> Array:
    """Expand TinyViT's (heads, window**2), one value per offset (|dy|, |dx|), to (heads,
    window**2, window**2).
    """
    y, x = np.divmod(np.arange(window**2), window)
    offsets = np.abs(y[:, None] - y) * window + np.abs(x[:, None] - x)
    return np.ascontiguousarray(table[:, offsets])


class Windows:
    """Partition of a (size, size) grid into (window, window) windows, padded right and bottom."""

    def __init__(self, size: int, window: int) -> None:
        self.size, self.window = size, window
        self.padding = -size % window
        self.across = (size + self.padding) // window

    def split(self, x: Var, channels: int) -> Var:
        """Partition (N, size**2, channels) into (N * windows, window**2, channels)."""
        x = reshape(x, 0, self.size, self.size, channels)
        if self.padding:
            x = op.pad(x, ints(0, 0, 0, 0, 0, self.padding, self.padding, 0), constant(0.0))
        x = reshape(x, -1, self.across, self.window, self.across, self.window, channels)
        return reshape(op.transpose(x, perm=[0, 1, 3, 2, 4, 5]), -1, self.window**2, channels)

    def merge(self, x: Var, channels: int) -> Var:
        """Merge (N * windows, window**2, heads, channels / heads) to (N, size**2, channels),
        without the padding.
        """
        x = reshape(x, -1, self.across, self.across, self.window, self.window, channels)
        padded = self.size + self.padding
        x = reshape(op.transpose(x, perm=[0, 1, 3, 2, 4, 5]), -1, padded, padded, channels)
        x = op.slice(x, ints(0, 0), ints(self.size, self.size), ints(1, 2)) if self.padding else x
        return reshape(x, 0, -1, channels)
