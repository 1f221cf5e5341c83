"""EdgeTAM's image encoder (Zhou et al. 2025, arXiv:2501.07256): RepViT (Wang et al. 2023, 2307.09283) and SAM 2's neck.

Widths and depths are read from the tensors. The 3x3 and the 1x1 depthwise convolution of a token mixer, and its
identity, are one convolution.
"""

import spox.opset.ai.onnx.v20 as op
from spox import Var

from sam_onnx.images import as_tokens, stem
from sam_onnx.nodes import conv_batch_norm, convolution, fold_batch_norm, ints
from sam_onnx.pyramid import pyramid
from sam_onnx.tensors import Tensors

STAGES = 4


def repvit(pixels: Var, tensors: Tensors) -> dict[str, Var]:
    """Return the embedding of centred pixels (N, 3, 1024, 1024), which fill the frame, from a checkpoint's tensors.

    Raises:
        CheckpointError: a tensor is missing or does not fit the others.
    """
    body = tensors.under("image_encoder").under("trunk").under("body")
    x, channels = stem(pixels, body.under("stem").under("conv1"), body.under("stem").under("conv2"))
    stages = []
    for stage in (body.under(f"stages_{index}") for index in range(STAGES)):
        if stage.has("downsample"):
            x, channels = _downsample(x, stage.under("downsample"), channels)
        blocks = stage.under("blocks")
        for index in range(blocks.count()):
            x = _block(x, blocks.under(index), channels)
        stages.append(as_tokens(x, channels))
    return pyramid(stages, tensors)


def _downsample(x: Var, tensors: Tensors, channels: int) -> tuple[Var, int]:
    x = _block(x, tensors.under("pre_block"), channels)
    x = conv_batch_norm(x, tensors.under("spatial_downsample"), (channels, 1, 3, 3), stride=2, depthwise=True)
    x = conv_batch_norm(x, tensors.under("channel_downsample"), (None, channels, 1, 1))
    channels = len(tensors.under("channel_downsample").get("bn.bias", None))
    return _mixed_channels(x, tensors.under("ffn"), channels), channels


def _block(x: Var, tensors: Tensors, channels: int) -> Var:
    mixer = tensors.under("token_mixer")
    weight, bias = fold_batch_norm(mixer.under("conv"), channels, 1, 3, 3)
    point_weight, point_bias = fold_batch_norm(mixer.under("conv1"), channels, 1, 1, 1)
    weight[:, :, 1:2, 1:2] += point_weight + 1
    x = convolution(x, weight, bias + point_bias, groups=channels)
    x = _excited(x, tensors.under("se"), channels) if tensors.has("se") else x
    return _mixed_channels(x, tensors.under("channel_mixer"), channels)


def _excited(x: Var, tensors: Tensors, channels: int) -> Var:
    """Scale channels by numbers that depend on their means: squeeze and excitation (Hu et al. 2018, 1709.01507)."""
    first, second = tensors.under("fc1"), tensors.under("fc2")
    weight = first.get("weight", None, channels, 1, 1)
    y = op.relu(convolution(op.reduce_mean(x, ints(2, 3)), weight, first.get("bias", len(weight))))
    y = convolution(y, second.get("weight", channels, len(weight), 1, 1), second.get("bias", channels))
    return op.mul(x, op.sigmoid(y))


def _mixed_channels(x: Var, tensors: Tensors, channels: int) -> Var:
    """Add an inverted bottleneck of two 1x1 convolutions."""
    y = op.gelu(conv_batch_norm(x, tensors.under("conv1"), (None, channels, 1, 1)))
    hidden = len(tensors.under("conv1").get("bn.bias", None))
    return op.add(x, conv_batch_norm(y, tensors.under("conv2"), (channels, hidden, 1, 1)))
