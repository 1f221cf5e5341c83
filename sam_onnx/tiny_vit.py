"""TinyViT as MobileSAM uses it (Wu et al. 2022, arXiv:2207.10666; Zhang et al. 2023, 2306.14289).

Every size is read from the tensors: widths, depths, heads, windows, expansions. The strides are
fixed: the stem divides by 4, the first two down-samplings by 2, any later one by 1, so that 1024
pixels become 64 positions.
"""

import spox.opset.ai.onnx.v20 as op
from spox import Var

from sam_onnx.errors import CheckpointError
from sam_onnx.hq import hq_features
from sam_onnx.images import (
    EMBEDDING,
    EMBEDDING_SIZE,
    FRAME_SIDE,
    STEM_STRIDE,
    as_image,
    as_tokens,
    neck,
    stem,
)
from sam_onnx.nodes import conv_batch_norm, layer_norm, mlp, sizes_of
from sam_onnx.tensors import Tensors
from sam_onnx.window_attention import window_attention


def tiny_vit(pixels: Var, tensors: Tensors) -> dict[str, Var]:
    """Return the embedding of centred pixels (N, 3, 1024, 1024), from all tensors of a checkpoint.

    Raises:
        CheckpointError: a tensor is missing or does not fit the others.
    """
    encoder = tensors.under("image_encoder")
    x = stem(pixels, encoder.under("patch_embed.seq.0"), encoder.under("patch_embed.seq.2"))
    size = FRAME_SIDE // STEM_STRIDE
    for layer in encoder.under("layers").children():
        for block in layer.under("blocks").children():
            x = _attention_block(x, block, size) if block.has("attn") else _mb_conv(x, block)
        if layer.has("downsample"):
            stride = 2 if size > EMBEDDING_SIZE else 1
            x = _bottleneck(x, layer.under("downsample"), None, stride)
            size //= stride
            if stride == 2:
                early = x
    if size != EMBEDDING_SIZE:
        raise CheckpointError(
            f"expected two or more down-samplings to {EMBEDDING_SIZE}x{EMBEDDING_SIZE}, got {size}"
        )
    embedding = neck(as_tokens(x), encoder.under("neck"))
    return {EMBEDDING: embedding, **hq_features(embedding, as_tokens(early), tensors)}


def _mb_conv(x: Var, tensors: Tensors) -> Var:
    return op.gelu(op.add(x, _bottleneck(x, tensors, sizes_of(x)[0])))


def _bottleneck(x: Var, tensors: Tensors, channels: int | None, stride: int = 1) -> Var:
    """Apply an inverted bottleneck: expand 1x1, depthwise 3x3, project 1x1; an activation
    follows all but the last.
    """
    y = op.gelu(conv_batch_norm(x, tensors.under("conv1"), 1))
    y = op.gelu(conv_batch_norm(y, tensors.under("conv2"), 3, stride=stride, depthwise=True))
    return conv_batch_norm(y, tensors.under("conv3"), 1, channels)


def _attention_block(x: Var, tensors: Tensors, size: int) -> Var:
    """Apply window attention, a depthwise convolution without residual, and an MLP; NCHW in and
    out.
    """
    channels = sizes_of(x)[0]
    tokens = as_tokens(x)
    tokens = op.add(tokens, window_attention(tokens, tensors.under("attn"), channels, size))
    tokens = as_tokens(
        conv_batch_norm(as_image(tokens, size), tensors.under("local_conv"), 3, depthwise=True)
    )
    normalised = layer_norm(tokens, tensors.under("mlp.norm"), channels)
    tokens = op.add(
        tokens, mlp(normalised, tensors.under("mlp"), ("fc1", "fc2"), channels, op.gelu)
    )
    return as_image(tokens, size)
