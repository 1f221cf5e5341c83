"""EfficientViT-SAM's image encoder (Cai et al. 2023, arXiv:2205.14756; Zhang et al. 2024, 2402.05008).

Every size is read from the tensors: widths, depths, expansions, heads, kernels; so is the kind of each block. The first
block of a stage halves the size and has no residual. The last three stages are enlarged to 64x64 and added.
"""

import numpy as np
import spox.opset.ai.onnx.v20 as op
from spox import Var

from sam_onnx.errors import CheckpointError
from sam_onnx.images import EMBEDDING_SIZE, PIXEL_STD, as_tokens
from sam_onnx.nodes import constant, convolution, fold_batch_norm, ints, layer_norm, reshape, sizes_of
from sam_onnx.tensors import Array, Tensors

FRAME_SIDES = {5: 512, 6: 1024}
"""Pixels of the encoder's frame by the number of stages: L0, L1 and L2 have five, XL0 and XL1 six."""
NECK_STAGES = 3
EPSILON = 1e-6  # of all norms, as the authors set it after they build a model
ATTENTION_EPSILON = 1e-15
BLOCKS = (("conv1", "conv2"), ("inverted_conv", "depth_conv", "point_conv"), ("spatial_conv", "point_conv"))
"""Convolutions of residual blocks, MBConv and fused MBConv; an activation follows each but the last."""


def frame_side(tensors: Tensors) -> int:
    """Return the height and width of the encoder's frame, in pixels.

    Raises:
        CheckpointError: there are fewer or more stages than in the published models.
    """
    stages = tensors.under("image_encoder").under("backbone").under("stages").count()
    if stages not in FRAME_SIDES:
        raise CheckpointError(f"expected 5 or 6 stages of EfficientViT, got {stages}")
    return FRAME_SIDES[stages]


def efficientvit(pixels: Var, tensors: Tensors) -> dict[str, Var]:
    """Return `image_embeddings` (N, 64, 64, C) of centred pixels (N, 3, S, S), S as `frame_side` returns it.

    Raises:
        CheckpointError: a tensor is missing or does not fit the others.
    """
    encoder = tensors.under("image_encoder")
    stages, neck = encoder.under("backbone").under("stages"), encoder.under("neck")
    weight, bias = _weights(stages.under(0).under("op_list").under(0), 3)
    weight = weight / np.reshape(PIXEL_STD, (1, 3, 1, 1)).astype(np.float32)
    x = op.gelu(convolution(pixels, weight, bias, stride=2), approximate="tanh")
    outputs: list[Var] = []
    for stage in range(stages.count()):
        blocks = stages.under(stage).under("op_list")
        for index in range(0 if stage else 1, blocks.count()):
            x = _block(x, blocks.under(index), stride=1 if index else 2)
        outputs.insert(0, x)
    inputs = (neck.under("input_ops").under(index).under("op_list").under(0) for index in range(NECK_STAGES))
    x, *others = (_enlarged(_convolution(x, layer)) for x, layer in zip(outputs, inputs))
    for other in others:
        x = op.add(x, other)
    middle = neck.under("middle").under("op_list")
    for index in range(middle.count()):
        x = _block(x, middle.under(index))
    x = _convolution(x, neck.under("output_ops").under(0).under("op_list").under(0))
    channels, *_ = sizes_of(x)
    tokens = layer_norm(as_tokens(x, channels), encoder.under("norm"), channels, EPSILON)
    return {"image_embeddings": reshape(tokens, 0, EMBEDDING_SIZE, EMBEDDING_SIZE, channels)}


def _weights(layer: Tensors, channels: int) -> tuple[Array, Array | None]:
    """Return the kernel of a convolution with `channels` inputs of each output, and its bias, its batch norm folded."""
    if layer.has("norm"):
        return fold_batch_norm(layer, None, channels, None, None, names=("conv", "norm"), epsilon=EPSILON)
    weight = layer.get("conv.weight", None, channels, None, None)
    return weight, layer.get("conv.bias", len(weight)) if layer.has("conv.bias") else None


def _convolution(x: Var, layer: Tensors, *, stride: int = 1, depthwise: bool = False) -> Var:
    channels, *_ = sizes_of(x)
    weight, bias = _weights(layer, 1 if depthwise else channels)
    return convolution(x, weight, bias, stride=stride, groups=channels if depthwise else 1)


def _block(x: Var, block: Tensors, stride: int = 1) -> Var:
    """Apply a block to `x` (NCHW): linear attention, if it has any, and convolutions."""
    if block.has("context_module"):
        x = op.add(x, _linear_attention(x, block.under("context_module").under("main")))
        block = block.under("local_module")
    main = block.under("main")
    *hidden, last = next((names for names in BLOCKS if main.has(names[0])), BLOCKS[-1])
    y = x
    for name in hidden:
        step = stride if name == hidden[-1] else 1
        y = _convolution(y, main.under(name), stride=step, depthwise=name == "depth_conv")
        y = op.gelu(y, approximate="tanh")
    y = _convolution(y, main.under(last))
    return y if stride > 1 else op.add(x, y)


def _linear_attention(x: Var, tensors: Tensors) -> Var:
    """Apply attention with weights relu(q) . relu(k), which sums over the keys once for all queries; NCHW in and out.

    Each scale has heads of its own, from queries, keys and values that are mixed with their neighbours.
    """
    _, height, width = sizes_of(x)
    qkv = _convolution(x, tensors.under("qkv"))
    channels, *_ = sizes_of(qkv)
    scales = tensors.under("aggreg")
    dim = scales.get("0.1.weight", channels, None, 1, 1).shape[1]
    scaled = [qkv]
    for scale in (scales.under(index) for index in range(scales.count())):
        y = convolution(qkv, scale.get("0.weight", channels, 1, None, None), None, groups=channels)
        scaled.append(convolution(y, scale.get("1.weight", channels, dim, 1, 1), None, groups=channels // dim))
    heads = reshape(op.concat(scaled, axis=1), 0, -1, 3 * dim, height * width)
    query, key, value = op.split(heads, axis=2, num_outputs=3)
    query, by_place = op.relu(query), op.transpose(op.relu(key), perm=[0, 1, 3, 2])
    mixed = op.matmul(op.matmul(value, by_place), query)
    total = op.matmul(op.reduce_sum(by_place, ints(2)), query)
    mixed = op.div(mixed, op.add(total, constant(ATTENTION_EPSILON)))
    return _convolution(reshape(mixed, 0, -1, height, width), tensors.under("proj"))


def _enlarged(x: Var) -> Var:
    """Enlarge (N, C, S, S) to (N, C, 64, 64) by bicubic interpolation.

    As two matrix products: ONNX Runtime's `Resize` would take 0.3 of the encoder's time.
    """
    size = sizes_of(x)[-1]
    if size == EMBEDDING_SIZE:
        return x
    weights = _bicubic_weights(size)
    return op.matmul(op.matmul(constant(weights), x), constant(weights.T))


def _bicubic_weights(size: int) -> Array:
    """Return the weights (64, size) of an axis; values beyond the ends are those at the ends (Keys 1981, a = -0.75)."""
    positions = (np.arange(EMBEDDING_SIZE) + 0.5) * size / EMBEDDING_SIZE - 0.5
    weights = np.zeros((EMBEDDING_SIZE, size), np.float32)
    for offset in range(-1, 3):
        neighbours = np.floor(positions).astype(int) + offset
        x = np.abs(positions - neighbours)
        near, far = (1.25 * x - 2.25) * x**2 + 1, -0.75 * (((x - 5) * x + 8) * x - 4)
        weights[np.arange(EMBEDDING_SIZE), neighbours.clip(0, size - 1)] += np.where(x < 1, near, far)
    return weights
