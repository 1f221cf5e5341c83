"""TinyViT as MobileSAM uses it (Wu et al. 2022, arXiv:2207.10666; Zhang et al. 2023, 2306.14289).

Every size is read from the tensors: widths, depths, heads, windows, expansions. The strides are fixed: the stem divides
by 4, the first two down-samplings by 2, any later one by 1, so that 1024 pixels become 64 positions.
"""

import spox.opset.ai.onnx.v20 as op
from spox import Var

from sam_onnx.errors import CheckpointError
from sam_onnx.hq import hq_features
from sam_onnx.images import EMBEDDING, EMBEDDING_SIZE, IMAGE_SIZE, STEM_STRIDE, as_image, as_tokens, neck, stem
from sam_onnx.nodes import conv_batch_norm, layer_norm, mlp
from sam_onnx.tensors import Tensors
from sam_onnx.window_attention import window_attention


def tiny_vit(pixels: Var, tensors: Tensors) -> dict[str, Var]:
    """Return the embedding of centred pixels (N, 3, 1024, 1024), from all tensors of a checkpoint.

    Raises:
        CheckpointError: a tensor is missing or does not fit the others.
    """
    encoder = tensors.under("image_encoder")
    convolutions = encoder.under("patch_embed").under("seq")
    x, channels = stem(pixels, convolutions.under(0), convolutions.under(2))
    size = IMAGE_SIZE // STEM_STRIDE
    layers = encoder.under("layers")
    for index in range(layers.count()):
        layer = layers.under(index)
        x = _layer(x, layer.under("blocks"), channels, size)
        if layer.has("downsample"):
            stride = 2 if size > EMBEDDING_SIZE else 1
            x, channels = _patch_merging(x, layer.under("downsample"), channels, stride)
            size //= stride
            if stride == 2:
                early, early_channels = x, channels
    if size != EMBEDDING_SIZE:
        raise CheckpointError(f"expected two or more down-samplings to {EMBEDDING_SIZE}x{EMBEDDING_SIZE}, got {size}")
    embedding = neck(as_tokens(x, channels), encoder.under("neck"), channels)
    return {EMBEDDING: embedding, **hq_features(embedding, as_tokens(early, early_channels), early_channels, tensors)}


def _layer(x: Var, blocks: Tensors, channels: int, size: int) -> Var:
    for index in range(blocks.count()):
        block = blocks.under(index)
        is_attention = block.has("attn")
        x = _attention_block(x, block, channels, size) if is_attention else _mb_conv(x, block, channels)
    return x


def _mb_conv(x: Var, tensors: Tensors, channels: int) -> Var:
    """Apply an inverted bottleneck: expand 1x1, depthwise 3x3, project 1x1; activation after the residual sum."""
    y = op.gelu(conv_batch_norm(x, tensors.under("conv1"), (None, channels, 1, 1)))
    hidden = tensors.under("conv1").get("bn.bias", None).shape[0]
    y = op.gelu(conv_batch_norm(y, tensors.under("conv2"), (hidden, 1, 3, 3), depthwise=True))
    y = conv_batch_norm(y, tensors.under("conv3"), (channels, hidden, 1, 1))
    return op.gelu(op.add(x, y))


def _patch_merging(x: Var, tensors: Tensors, channels: int, stride: int) -> tuple[Var, int]:
    y = op.gelu(conv_batch_norm(x, tensors.under("conv1"), (None, channels, 1, 1)))
    merged = tensors.under("conv1").get("bn.bias", None).shape[0]
    y = op.gelu(conv_batch_norm(y, tensors.under("conv2"), (merged, 1, 3, 3), stride=stride, depthwise=True))
    return conv_batch_norm(y, tensors.under("conv3"), (merged, merged, 1, 1)), merged


def _attention_block(x: Var, tensors: Tensors, channels: int, size: int) -> Var:
    """Apply window attention, a depthwise convolution without residual, and an MLP; NCHW in and out."""
    tokens = as_tokens(x, channels)
    tokens = op.add(tokens, window_attention(tokens, tensors.under("attn"), channels, size))
    x = conv_batch_norm(as_image(tokens, size), tensors.under("local_conv"), (channels, 1, 3, 3), depthwise=True)
    tokens = as_tokens(x, channels)
    normalised = layer_norm(tokens, tensors.under("mlp").under("norm"), channels)
    tokens = op.add(tokens, mlp(normalised, tensors.under("mlp"), ("fc1", "fc2"), channels, op.gelu))
    return as_image(tokens, size)
