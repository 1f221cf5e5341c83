"""SAM 2's image encoder (Ravi et al. 2024, arXiv:2408.00714): Hiera (Ryali et al. 2023,
2306.00989).

Four stages halve the grid of 256x256 positions and double the channels and heads. Most blocks
attend within windows, some to all positions; the first block of a stage attends within the windows
of the stage before, and keeps the maximum of 2x2 queries and of 2x2 positions. Widths, depths and
MLPs are read from the tensors.

As in `window_attention`, biases on keys and values cost nothing, and padded keys and values are
zero.
"""

from typing import NamedTuple

import numpy as np
import spox.opset.ai.onnx.v20 as op
from spox import Var

from sam_onnx.errors import CheckpointError
from sam_onnx.images import DEVIATION, FRAME_SIDE, STEM_STRIDE, as_tokens, bicubic
from sam_onnx.nodes import (
    constant,
    convolution,
    ints,
    layer_norm,
    linear,
    mlp,
    reshape,
    sizes_of,
    split_heads,
)
from sam_onnx.pyramid import pyramid
from sam_onnx.tensors import Tensors
from sam_onnx.window_attention import Windows

PATCH_SIZE = 7
MAX_CHANNELS = 1024
"""Channels of the first stage, each of which has 256x256 positions that are not in the file;
published: 144."""
EPSILON = 1e-6  # of the encoder's layer norms


class Variant(NamedTuple):
    """Sizes that are not visible in the tensors."""

    heads: int
    """Heads of the first stage."""
    window: int
    """Positions across a window of the third stage; the fourth has half of them."""
    global_blocks: tuple[int, ...]


VARIANTS = {
    (1, 2, 7, 2): Variant(1, 14, (5, 7, 9)),
    (1, 2, 11, 2): Variant(1, 14, (7, 10, 13)),
    (2, 3, 16, 3): Variant(2, 14, (12, 16, 20)),
    (2, 6, 36, 4): Variant(2, 16, (23, 33, 43)),
}
"""Published variants by the blocks in each stage: tiny, small, base_plus and large."""


def hiera(pixels: Var, tensors: Tensors) -> dict[str, Var]:
    """Return the embedding of centred pixels (N, 3, 1024, 1024), which fill the frame, from a
    checkpoint's tensors.

    Raises:
        CheckpointError: a tensor is missing or does not fit the others, or the variant is not
            known.
    """
    return pyramid(_stages(pixels, tensors.under("image_encoder.trunk")), tensors)


def _stages(pixels: Var, tensors: Tensors) -> list[Var]:
    """Return the tokens (N, size**2, channels) after each stage."""
    blocks = tensors.under("blocks").children()
    starts = [index for index, block in enumerate(blocks) if block.has("proj")]
    depths = tuple(np.diff([0, *starts, len(blocks)]).tolist())
    if depths not in VARIANTS:
        raise CheckpointError(
            f"expected one of {[*VARIANTS]} blocks in the stages of the encoder, got {depths}"
        )
    variant, size = VARIANTS[depths], FRAME_SIDE // STEM_STRIDE
    x, window = _embed(pixels, tensors, size)
    windows = (window, window // 2, variant.window, variant.window // 2)
    stages = []
    for index, block in enumerate(blocks):
        stage, pools = sum(start <= index for start in starts), index in starts
        layout = Windows(size, size if index in variant.global_blocks else windows[stage - pools])
        x = _block(x, block, variant.heads << stage, layout, pools)
        size = size // 2 if pools else size
        if index + 1 in (*starts, len(blocks)):
            stages.append(x)
    return stages


def _embed(pixels: Var, tensors: Tensors, size: int) -> tuple[Var, int]:
    """Return the embedded patches with their positions, (N, size**2, channels), and the first
    stage's window.
    """
    patches = tensors.under("patch_embed.proj")
    weight = patches.get("weight", None, 3, PATCH_SIZE, PATCH_SIZE)
    channels = len(weight)
    if channels > MAX_CHANNELS:
        raise CheckpointError(
            f"expected at most {MAX_CHANNELS} channels of the first stage, got {channels}"
        )
    x = convolution(pixels, weight / DEVIATION, patches.get("bias", channels), stride=STEM_STRIDE)
    background = tensors.get("pos_embed", 1, channels, None, None)[0]
    window = tensors.get("pos_embed_window", 1, channels, None, None)[0]
    if window.shape[1] != window.shape[2] or size % window.shape[1]:
        raise CheckpointError(
            f"unexpected shape: expected pos_embed_window to divide {size}, got {window.shape}"
        )
    rows, columns = (bicubic(across, size) for across in background.shape[1:])
    positions = rows @ background @ columns.T + np.tile(
        window, (1, size // window.shape[1], size // window.shape[2])
    )
    positions = positions.reshape(1, channels, -1).transpose(0, 2, 1)
    return op.add(as_tokens(x), constant(positions)), window.shape[1]


def _block(x: Var, tensors: Tensors, heads: int, layout: Windows, pools: bool) -> Var:
    """Apply attention within windows, and an MLP, to tokens (N, size**2, channels).

    If the block `pools`, the result has a quarter of the tokens.
    """
    channels = tensors.get("norm1.weight", None).size
    width = len(tensors.under("attn").get("proj.bias", None))
    normalised = layer_norm(x, tensors.under("norm1"), channels, EPSILON)
    mixed = _attention(
        layout.split(normalised, channels), tensors.under("attn"), heads, layout.window, pools
    )
    if pools:
        x = linear(
            normalised,
            tensors.get("proj.weight", width, channels).T,
            tensors.get("proj.bias", width),
        )
        x, layout = _pooled(x, layout.size, width), Windows(layout.size // 2, layout.window // 2)
    x = op.add(x, layout.merge(mixed, width))
    normalised = layer_norm(x, tensors.under("norm2"), width, EPSILON)
    return op.add(
        x, mlp(normalised, tensors.under("mlp"), ("layers.0", "layers.1"), width, op.gelu)
    )


def _attention(windows: Var, tensors: Tensors, heads: int, window: int, pools: bool) -> Var:
    """Apply self-attention to windows (B, window**2, channels); with `pools`, the result has a
    quarter of the rows.
    """
    width = len(tensors.get("proj.bias", None))
    if width % heads:
        raise CheckpointError(
            f"unexpected shape: expected proj.bias divisible by {heads}, got {width}"
        )
    weights = np.split(tensors.get("qkv.weight", 3 * width, sizes_of(windows)[-1]), 3)
    query_bias, _, value_bias = np.split(tensors.get("qkv.bias", 3 * width), 3)
    scale = (width // heads) ** -0.5
    query = linear(windows, weights[0].T * scale, query_bias * scale)
    query = split_heads(_pooled(query, window, width) if pools else query, heads)
    key, value = (split_heads(linear(windows, weight.T, None), heads) for weight in weights[1:])
    scores = op.softmax(op.matmul(query, op.transpose(key, perm=[0, 1, 3, 2])), axis=-1)
    mixed = reshape(op.transpose(op.matmul(scores, value), perm=[0, 2, 1, 3]), 0, 0, width)
    projection = tensors.get("proj.weight", width, width)
    return linear(mixed, projection.T, tensors.get("proj.bias", width) + projection @ value_bias)


def _pooled(x: Var, size: int, channels: int) -> Var:
    """Return the maxima of 2x2 tokens (B, size**2, channels), (B, size**2 / 4, channels)."""
    half = size // 2
    x = op.reduce_max(reshape(x, -1, half, 2, half, 2, channels), ints(2, 4), keepdims=False)
    return reshape(x, -1, half**2, channels)
