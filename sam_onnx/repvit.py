"""EdgeTAM's image encoder (Zhou et al. 2025, arXiv:2501.07256): RepViT (Wang et al. 2023,
2307.09283) and SAM 2's neck.

Widths and depths are read from the tensors. The 3x3 and the 1x1 depthwise convolution of a token
mixer, and its identity, are one convolution.
"""

import spox.opset.ai.onnx.v20 as op
from spox import Var

from sam_onnx.images import as_tokens, stem
from sam_onnx.nodes import conv_batch_norm, convolution, fold_batch_norm, ints, sizes_of
from sam_onnx.pyramid import pyramid
from sam_onnx.tensors import Tensors

STAGES = 4


def repvit(pixels: Var, tensors: Tensors) -> dict[str, Var]:
    """Return the embedding of centred pixels (N, 3, 1024, 1024), which fill the frame, from a
    checkpoint's tensors.

    Raises:
        CheckpointError: a tensor is missing or does not fit the others.
    """
    body = tensors.under("image_encoder.trunk.body")
    x = stem(pixels, body.under("stem.conv1"), body.under("stem.conv2"))
    stages = []
    for stage in (body.under(f"stages_{index}") for index in range(STAGES)):
        x = _downsample(x, stage.under("downsample")) if stage.has("downsample") else x
        for block in stage.under("blocks").children():
            x = _block(x, block)
        stages.append(as_tokens(x))
    return pyramid(stages, tensors)


def _downsample(x: Var, tensors: Tensors) -> Var:
    x = _block(x, tensors.under("pre_block"))
    x = conv_batch_norm(x, tensors.under("spatial_downsample"), 3, stride=2, depthwise=True)
    return _mixed_channels(
        conv_batch_norm(x, tensors.under("channel_downsample"), 1), tensors.under("ffn")
    )


def _block(x: Var, tensors: Tensors) -> Var:
    mixer, channels = tensors.under("token_mixer"), sizes_of(x)[0]
    weight, bias = fold_batch_norm(mixer.under("conv"), channels, 1, 3, 3)
    point_weight, point_bias = fold_batch_norm(mixer.under("conv1"), channels, 1, 1, 1)
    weight[:, :, 1:2, 1:2] += point_weight + 1
    x = convolution(x, weight, bias + point_bias, groups=channels)
    x = _excited(x, tensors.under("se"), channels) if tensors.has("se") else x
    return _mixed_channels(x, tensors.under("channel_mixer"))


def _excited(x: Var, tensors: Tensors, channels: int) -> Var:
    """Scale channels by numbers that depend on their means: squeeze and excitation (Hu et al.
    2018, 1709.01507).
    """
    first, second = tensors.under("fc1"), tensors.under("fc2")
    weight = first.get("weight", None, channels, 1, 1)
    y = op.relu(convolution(op.reduce_mean(x, ints(2, 3)), weight, first.get("bias", len(weight))))
    y = convolution(
        y, second.get("weight", channels, len(weight), 1, 1), second.get("bias", channels)
    )
    return op.mul(x, op.sigmoid(y))


def _mixed_channels(x: Var, tensors: Tensors) -> Var:
    """Add an inverted bottleneck of two 1x1 convolutions."""
    y = op.gelu(conv_batch_norm(x, tensors.under("conv1"), 1))
    return op.add(x, conv_batch_norm(y, tensors.under("conv2"), 1, sizes_of(x)[0]))
