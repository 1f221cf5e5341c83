"""What the graphs share: layers, with constant factors folded into their weights, and the
finished model.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import onnx
import onnx.helper
import spox
import spox.opset.ai.onnx.v20 as op
from onnx import numpy_helper
from spox import Tensor, Var

from sam_onnx.repository import BUILDER_VERSION
from sam_onnx.tensors import Array, Tensors

Size: TypeAlias = int | None

IR_VERSION = 9  # the one of opset 20; ONNX Runtime 1.19 reads up to 10
BATCH_NORM_EPSILON = 1e-5  # torch.nn.BatchNorm2d's default
LAYER_NORM_EPSILON = 1e-5  # torch.nn.LayerNorm's default
LAYER_NORM_2D_EPSILON = 1e-6  # segment-anything's LayerNorm2d
MIN_WEIGHT_BYTES = 2**16
_weights: dict[Var, Array] = {}
"""Values of the constants that are inputs until the graph is finished: checks of a graph cannot
take 2 GB or more."""


def constant(value: Array | float) -> Var:
    """Return a float32 constant."""
    array = np.asarray(value, dtype=np.float32)
    if array.nbytes < MIN_WEIGHT_BYTES:
        return op.const(array)
    weight = spox.argument(Tensor(np.float32, array.shape))
    _weights[weight] = array
    return weight


def ints(*values: int) -> Var:
    """Return a 1-D int64 constant, for shape operators."""
    return op.const(np.asarray(values, dtype=np.int64))


def reshape(x: Var, *shape: int) -> Var:
    """Reshape `x`; one size may be -1."""
    return op.reshape(x, ints(*shape))


def argument_like(value: onnx.ValueInfoProto) -> Var:
    """Return an input like that of another graph."""
    tensor = value.type.tensor_type
    shape = tuple(size.dim_param or size.dim_value for size in tensor.shape.dim)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    return spox.argument(Tensor(dtype, shape))


def item(values: Var, index: int) -> Var:
    """Return one value of (N,), in a tensor of one value."""
    return op.slice(values, ints(index), ints(index + 1), ints(0))


def length_of(x: Var, axis: int) -> Var:
    """Return the length of an axis, in a tensor of one value."""
    return op.slice(op.shape(x), ints(axis), ints(axis + 1), ints(0))


def places(length: Var) -> Var:
    """Return 0, 1, ... as float64, for a length (1,) of any type."""
    zero, one = op.const(np.int64(0)), op.const(np.int64(1))
    end = op.squeeze(op.cast(length, to=np.int64), ints(0))
    return op.cast(op.range(zero, end, one), to=np.float64)


def sizes_of(x: Var) -> list[int]:
    """Return the sizes of `x` that are known, which are all but the batch's."""
    return [size for size in x.unwrap_tensor().shape or () if isinstance(size, int)]


def split_heads(x: Var, heads: int) -> Var:
    """Reshape (N, T, channels) to (N, heads, T, channels / heads)."""
    return op.transpose(reshape(x, 0, 0, heads, sizes_of(x)[-1] // heads), perm=[0, 2, 1, 3])


def linear(x: Var, weight: Array, bias: Array | None) -> Var:
    """Return `x @ weight + bias` for `weight` (in, out), the transpose of torch's (out, in)."""
    y = op.matmul(x, constant(weight))
    return y if bias is None else op.add(y, constant(bias))


def layer_norm(x: Var, norm: Tensors, width: int, epsilon: float = LAYER_NORM_EPSILON) -> Var:
    """Normalise over the last axis, of size `width`."""
    weight, bias = constant(norm.get("weight", width)), constant(norm.get("bias", width))
    return op.layer_normalization(x, weight, bias, axis=-1, epsilon=epsilon)[0]


def mlp(
    x: Var, tensors: Tensors, names: tuple[str, str], width: int, activation: Callable[[Var], Var]
) -> Var:
    """Apply two linear layers with an activation between them; input and output have `width`
    channels.
    """
    first, second = (tensors.under(name) for name in names)
    weight = first.get("weight", None, width)
    y = activation(linear(x, weight.T, first.get("bias", len(weight))))
    return linear(y, second.get("weight", width, len(weight)).T, second.get("bias", width))


def fold_batch_norm(
    tensors: Tensors,
    *shape: Size,
    names: tuple[str, str] = ("c", "bn"),
    epsilon: float = BATCH_NORM_EPSILON,
) -> tuple[Array, Array]:
    """Fold a batch norm into the bias-free convolution before it: weight (out, in/groups, kh, kw)
    and bias (out,).

    A convolution with a bias and without a batch norm stays as it is. Inference-time batch norm is
    gamma * (y - mean) / sqrt(var + eps) + beta, a scale and a shift per output channel.
    """
    convolution, norm = names
    weight = tensors.get(f"{convolution}.weight", *shape)
    channels = weight.shape[0]
    if tensors.has(f"{convolution}.bias") and not tensors.has(norm):
        return weight, tensors.get(f"{convolution}.bias", channels)
    gamma, beta, mean, variance = (
        tensors.get(f"{norm}.{name}", channels).astype(np.float64)
        for name in ("weight", "bias", "running_mean", "running_var")
    )
    scale = gamma / np.sqrt(variance + epsilon)
    folded = weight * scale[:, None, None, None]
    return folded.astype(np.float32), (beta - mean * scale).astype(np.float32)


def conv_batch_norm(
    x: Var,
    tensors: Tensors,
    size: int,
    channels: Size = None,
    *,
    stride: int = 1,
    depthwise: bool = False,
    names: tuple[str, str] = ("c", "bn"),
    epsilon: float = BATCH_NORM_EPSILON,
) -> Var:
    """Apply a convolution of `size`x`size` and its batch norm to `x` (NCHW), as `convolution`.

    The result has `channels`, as many as the tensors have if it is None.
    """
    inputs = sizes_of(x)[0]
    shape = (inputs, 1, size, size) if depthwise else (channels, inputs, size, size)
    weight, bias = fold_batch_norm(tensors, *shape, names=names, epsilon=epsilon)
    return convolution(x, weight, bias, stride=stride, groups=inputs if depthwise else 1)


def convolution(
    x: Var, weight: Array, bias: Array | None, *, stride: int = 1, groups: int = 1
) -> Var:
    """Convolve `x` (NCHW) with `weight` (out, in/groups, k, k), padded to keep the size (divided
    by `stride`).
    """
    size = weight.shape[-1]
    return op.conv(
        x,
        constant(weight),
        None if bias is None else constant(bias),
        kernel_shape=[size, size],
        pads=[size // 2] * 4,
        strides=[stride, stride],
        group=groups,
    )


def finished_model(name: str, inputs: dict[str, Var], outputs: dict[str, Var]) -> onnx.ModelProto:
    """Build a model of an IR version that older runtimes read, and check it."""
    weights = {f"unused_{index}": weight for index, weight in enumerate(_weights)}
    model = spox.build(inputs | weights, outputs, drop_unused_inputs=True)
    used = [key for key in weights if any(key == value.name for value in model.graph.input)]
    names = {key: f"weight_{index}" for index, key in enumerate(used)}
    for node in model.graph.node:
        node.input[:] = [names.get(key, key) for key in node.input]
    for value in model.graph.input:
        value.name = names.get(value.name, value.name)
    model.ir_version = IR_VERSION
    model.graph.name = name
    model.producer_name, model.producer_version = "sam_onnx", BUILDER_VERSION
    onnx.checker.check_model(model, full_check=True)
    declared = {value.name: value for value in model.graph.input}
    del model.graph.input[:]
    model.graph.input.extend(declared[key] for key in inputs)
    for key, new in names.items():
        model.graph.initializer.append(numpy_helper.from_array(_weights.pop(weights[key]), new))
    return model
