"""EfficientViT-SAM's image encoder (Cai et al. 2023, arXiv:2205.14756; Zhang et al. 2024,
2402.05008).

Every size is read from the tensors: widths, depths, expansions, heads, kernels; so is the kind of
each block. The first block of a stage halves the size and has no residual. The last three stages
are enlarged to 64x64 and added.
"""

from functools import partial

import spox.opset.ai.onnx.v20 as op
from spox import Var

from sam_onnx.errors import CheckpointError
from sam_onnx.images import DEVIATION, EMBEDDING, EMBEDDING_SIZE, as_tokens, bicubic
from sam_onnx.nodes import (
    constant,
    conv_batch_norm,
    convolution,
    fold_batch_norm,
    ints,
    layer_norm,
    reshape,
    sizes_of,
)
from sam_onnx.tensors import Tensors

FRAME_SIDES = {5: 512, 6: 1024}
"""Pixels of the encoder's frame by the number of stages: L0, L1 and L2 have five, XL0 and XL1
six."""
EPSILON = 1e-6  # of all norms, as the authors set it after they build a model
NAMES = "conv", "norm"  # of a convolution and its batch norm
ATTENTION_EPSILON = 1e-15
BLOCKS = (
    {"spatial_conv": 3, "point_conv": 1},
    {"inverted_conv": 1, "depth_conv": 3, "point_conv": 1},
    {"conv1": 3, "conv2": 3},
)
"""Kernel sizes of fused MBConv, MBConv and residual blocks, by name; an activation follows all
but the last."""
_gelu = partial(op.gelu, approximate="tanh")
_convolution = partial(conv_batch_norm, names=NAMES, epsilon=EPSILON)


def frame_side(tensors: Tensors) -> int:
    """Return the height and width of the encoder's frame, in pixels.

    Raises:
        CheckpointError: there are fewer or more stages than in the published models.
    """
    stages = len(tensors.under("image_encoder.backbone.stages").children())
    if stages not in FRAME_SIDES:
        raise CheckpointError(f"expected 5 or 6 stages of EfficientViT, got {stages}")
    return FRAME_SIDES[stages]


def efficientvit(pixels: Var, tensors: Tensors) -> dict[str, Var]:
    """Return `image_embeddings` (N, 64, 64, C) of centred pixels (N, 3, S, S), S as `frame_side`
    returns it.

    Raises:
        CheckpointError: a tensor is missing or does not fit the others.
    """
    encoder = tensors.under("image_encoder")
    stages, neck = encoder.under("backbone.stages"), encoder.under("neck")
    weight, bias = fold_batch_norm(
        stages.under("0.op_list.0"), None, 3, 3, 3, names=NAMES, epsilon=EPSILON
    )
    x = _gelu(convolution(pixels, weight / DEVIATION, bias, stride=2))
    outputs: list[Var] = []
    for stage, blocks in enumerate(stages.children()):
        for index, block in enumerate(blocks.under("op_list").children()):
            x = _block(x, block, stride=1 if index else 2) if stage or index else x
        outputs.insert(0, x)
    last = neck.under("output_ops.0.op_list.0")
    channels, width, _, _ = last.get("conv.weight", None, None, 1, 1).shape
    layers = [layer.under("op_list.0") for layer in neck.under("input_ops").children()]
    x = op.sum(
        [
            _enlarged(_convolution(x, layer, 1, width))
            for x, layer in zip(outputs, layers, strict=False)
        ]
    )
    for block in neck.under("middle.op_list").children():
        x = _block(x, block)
    tokens = as_tokens(_convolution(x, last, 1, channels))
    tokens = layer_norm(tokens, encoder.under("norm"), channels, EPSILON)
    return {EMBEDDING: reshape(tokens, 0, EMBEDDING_SIZE, EMBEDDING_SIZE, channels)}


def _block(x: Var, block: Tensors, *, stride: int = 1) -> Var:
    """Apply linear attention, if the block has any, and convolutions, without a residual if they
    have a stride.
    """
    channels = sizes_of(x)[0]
    if block.has("context_module"):
        x = op.add(x, _linear_attention(x, block.under("context_module.main"), channels))
        block = block.under("local_module")
    main, y = block.under("main"), x
    sizes = next((sizes for sizes in BLOCKS if main.has(next(iter(sizes)))), BLOCKS[0])
    *hidden, last = sizes
    for name in hidden:
        step = stride if name == hidden[-1] else 1
        y = _convolution(
            y, main.under(name), sizes[name], stride=step, depthwise=name == "depth_conv"
        )
        y = _gelu(y)
    if stride > 1:
        return _convolution(y, main.under(last), sizes[last])
    return op.add(x, _convolution(y, main.under(last), sizes[last], channels))


def _linear_attention(x: Var, tensors: Tensors, channels: int) -> Var:
    """Apply multi-scale attention whose weights are relu(q) . relu(k), divided by their sum; NCHW
    in and out.

    As they are linear in q, the sum of v times relu(k) over all positions serves every query. Each
    scale has heads of its own: queries, keys and values are mixed with their neighbours, and then
    with each other.
    """
    _, height, width = sizes_of(x)
    weight = tensors.get("qkv.conv.weight", None, channels, 1, 1)
    inner, scales = len(weight), tensors.under("aggreg")
    dim = scales.get("0.1.weight", inner, None, 1, 1).shape[1]
    if inner % (3 * dim):
        raise CheckpointError(
            f"unexpected shape: expected qkv.conv.weight divisible by {3 * dim}, got {inner}"
        )
    qkv = [convolution(x, weight, None)]
    for scale in scales.children():
        size = scale.get("0.weight", inner, 1, None, None).shape[2] | 1  # odd
        y = convolution(qkv[0], scale.get("0.weight", inner, 1, size, size), None, groups=inner)
        qkv.append(
            convolution(y, scale.get("1.weight", inner, dim, 1, 1), None, groups=inner // dim)
        )
    heads = reshape(op.concat(qkv, axis=1), 0, -1, 3 * dim, height * width)
    query, key, value = op.split(heads, axis=2, num_outputs=3)
    query, key = op.relu(query), op.transpose(op.relu(key), perm=[0, 1, 3, 2])
    mixed = op.matmul(op.matmul(value, key), query)
    total = op.add(op.matmul(op.reduce_sum(key, ints(2)), query), constant(ATTENTION_EPSILON))
    return _convolution(
        reshape(op.div(mixed, total), 0, -1, height, width), tensors.under("proj"), 1, channels
    )


def _enlarged(x: Var) -> Var:
    """Enlarge (N, C, S, S) to (N, C, 64, 64) by bicubic interpolation.

    As two matrix products: ONNX Runtime's `Resize` would take 0.3 of the encoder's time.
    """
    size = sizes_of(x)[-1]
    if size == EMBEDDING_SIZE:
        return x
    weights = bicubic(size, EMBEDDING_SIZE)
    return op.matmul(op.matmul(constant(weights), x), constant(weights.T))
