"""The image encoder: TinyViT as MobileSAM uses it (Wu et al. 2022, arXiv:2207.10666; Zhang et al. 2023, 2306.14289).

Every size is read from the tensors: widths, depths, heads, windows, expansions. The strides are fixed: the stem divides
by 4, the first two down-samplings by 2, any later one by 1, so that 1024 pixels become 64 positions.
"""

import numpy as np
import onnx
import spox
import spox.opset.ai.onnx.v20 as op
from spox import Tensor, Var

from sam_onnx.attention import window_attention
from sam_onnx.errors import CheckpointError
from sam_onnx.nodes import (
    LAYER_NORM_2D_EPSILON,
    constant,
    conv_batch_norm,
    finished_model,
    fold_batch_norm,
    ints,
    layer_norm,
    linear,
    mlp,
    reshape,
)
from sam_onnx.tensors import StateDict, Tensors

IMAGE_SIZE = 1024
EMBEDDING_SIZE = 64
STEM_STRIDE = 4
PIXEL_MEAN = (123.675, 116.28, 103.53)
PIXEL_STD = (58.395, 57.12, 57.375)


def build_encoder(state: StateDict) -> onnx.ModelProto:
    """Build the encoder.

    Inputs `images` (N, 1024, 1024, 3) uint8 RGB, the image in the top left corner, and `sizes_hw` (N, 2) int32, the
    height and width of that image; pixels outside it are ignored. Output `image_embeddings` (N, 64, 64, C) float16,
    C = 256 for MobileSAM. float16 halves the bytes without changing the masks (mean IoU 0.9999). The channels are last,
    as the decoder needs them; PyTorch's (N, C, 64, 64) would be transposed twice.

    Raises:
        CheckpointError: a tensor is missing or does not fit the others.
    """
    tensors = Tensors(state).under("image_encoder")
    images = spox.argument(Tensor(np.uint8, ("N", IMAGE_SIZE, IMAGE_SIZE, 3)))
    sizes_hw = spox.argument(Tensor(np.int32, ("N", 2)))
    x, channels = _stem(_centred_pixels(images, sizes_hw), tensors.under("patch_embed").under("seq"))
    size = IMAGE_SIZE // STEM_STRIDE
    layers = tensors.under("layers")
    for index in range(layers.count()):
        layer = layers.under(index)
        x = _layer(x, layer.under("blocks"), channels, size)
        if layer.has("downsample"):
            stride = 2 if size > EMBEDDING_SIZE else 1
            x, channels = _patch_merging(x, layer.under("downsample"), channels, stride)
            size //= stride
    if size != EMBEDDING_SIZE:
        raise CheckpointError(f"expected two or more down-samplings to {EMBEDDING_SIZE}x{EMBEDDING_SIZE}, got {size}")
    embeddings = op.cast(_neck(x, tensors.under("neck"), channels), to=np.float16)
    inputs = {"images": images, "sizes_hw": sizes_hw}
    return finished_model("mobile_sam_encoder", inputs, {"image_embeddings": embeddings})


def _centred_pixels(images: Var, sizes_hw: Var) -> Var:
    """Return (N, 3, 1024, 1024) float32: pixels minus their mean, 0 outside the image; not divided by the deviation."""
    # Transposed before the cast, while it is a quarter of the bytes.
    pixels = op.cast(op.transpose(images, perm=[0, 3, 1, 2]), to=np.float32)
    centred = op.sub(pixels, constant(np.reshape(PIXEL_MEAN, (1, 3, 1, 1)).astype(np.float32)))
    positions = np.arange(IMAGE_SIZE, dtype=np.int32)
    sizes = op.unsqueeze(sizes_hw, ints(2, 3))
    height = op.slice(sizes, ints(0), ints(1), ints(1))
    width = op.slice(sizes, ints(1), ints(2), ints(1))
    inside = op.and_(
        op.less(op.const(positions.reshape(1, 1, IMAGE_SIZE, 1)), height),
        op.less(op.const(positions.reshape(1, 1, 1, IMAGE_SIZE)), width),
    )
    return op.where(inside, centred, constant(0.0))


def _stem(x: Var, tensors: Tensors) -> tuple[Var, int]:
    weight, bias = fold_batch_norm(tensors.under(0), None, 3, 3, 3)
    weight = weight / np.reshape(PIXEL_STD, (1, 3, 1, 1)).astype(np.float32)
    x = op.gelu(op.conv(x, constant(weight), constant(bias), kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2]))
    x = conv_batch_norm(x, tensors.under(2), (None, weight.shape[0], 3, 3), stride=2)
    return x, tensors.under(2).get("bn.bias", None).shape[0]


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
    tokens = _tokens(x, channels)
    tokens = op.add(tokens, window_attention(tokens, tensors.under("attn"), channels, size))
    x = conv_batch_norm(_image(tokens, size), tensors.under("local_conv"), (channels, 1, 3, 3), depthwise=True)
    tokens = _tokens(x, channels)
    normalised = layer_norm(tokens, tensors.under("mlp").under("norm"), channels)
    tokens = op.add(tokens, mlp(normalised, tensors.under("mlp"), ("fc1", "fc2"), channels, op.gelu))
    return _image(tokens, size)


def _tokens(x: Var, channels: int) -> Var:
    """Reshape (N, channels, H, W) to (N, H * W, channels).

    With four dimensions OpenVINO would use a convolution's memory layout for the tokens, and reorder them for every
    product; with three the encoder takes 0.86 of the time.
    """
    return reshape(op.transpose(x, perm=[0, 2, 3, 1]), 0, -1, channels)


def _image(tokens: Var, size: int) -> Var:
    """Reshape (N, size**2, channels) to (N, channels, size, size)."""
    return op.transpose(reshape(tokens, 0, size, size, -1), perm=[0, 3, 1, 2])


def _neck(x: Var, tensors: Tensors, channels: int) -> Var:
    """Project (N, channels, 64, 64) to (N, 64, 64, C)."""
    project = tensors.get("0.weight", None, channels, 1, 1)
    width = project.shape[0]
    tokens = linear(_tokens(x, channels), project[:, :, 0, 0].T, None)
    tokens = layer_norm(tokens, tensors.under(1), width, LAYER_NORM_2D_EPSILON)
    y = op.conv(
        _image(tokens, EMBEDDING_SIZE),
        constant(tensors.get("2.weight", width, width, 3, 3)),
        kernel_shape=[3, 3],
        pads=[1] * 4,
    )
    tokens = layer_norm(_tokens(y, width), tensors.under(3), width, LAYER_NORM_2D_EPSILON)
    return reshape(tokens, 0, EMBEDDING_SIZE, EMBEDDING_SIZE, width)
