"""Layers that both graphs share; tensors in the state have PyTorch's dotted names."""

from collections.abc import Sequence

import numpy as np
import spox.opset.ai.onnx.v17 as op
from numpy.typing import ArrayLike
from spox import Var

from mobile_sam_onnx.tensors import StateDict


def floats(value: ArrayLike) -> Var:
    """Return a float32 constant."""
    return op.const(np.asarray(value, np.float32))


def ints(values: Sequence[int]) -> Var:
    """Return an int64 vector, for shapes, axes and slices."""
    return op.const(np.asarray(values, np.int64))


def reshape(x: Var, *shape: int) -> Var:
    """Reshape; 0 keeps a dimension, -1 is inferred."""
    return op.reshape(x, ints(shape))


def part(x: Var, axis: int, start: int, end: int) -> Var:
    """Return x[start:end] along `axis`; `end` may exceed the size."""
    return op.slice(x, ints([start]), ints([end]), ints([axis]))


def conv(state: StateDict, name: str, x: Var, stride: int = 1, groups: int = 1) -> Var:
    """Apply the convolution `name`; without padding if the stride equals the kernel size, otherwise padded."""
    weight = state[f"{name}.weight"]
    size = weight.shape[-1]
    pad = 0 if size == stride else size // 2
    return op.conv(
        x, floats(weight), floats(state[f"{name}.bias"]), kernel_shape=[size, size], strides=[stride, stride],
        pads=[pad] * 4, group=groups,
    )  # fmt: skip


def stage(state: StateDict, name: str, x: Var) -> Var:
    """Apply all blocks of a stage: x + narrow(relu(wide(depth(x))))."""
    index = 0
    while f"{name}.{index}.depth.weight" in state:
        block = f"{name}.{index}"
        channels = state[f"{block}.depth.weight"].shape[0]
        inner = conv(state, f"{block}.wide", conv(state, f"{block}.depth", x, groups=channels))
        x = op.add(x, conv(state, f"{block}.narrow", op.relu(inner)))
        index += 1
    assert index, f"no blocks under {name}"
    return x


def double(x: Var) -> Var:
    """Up-sample (N, C, H, W) to (N, C, 2 H, 2 W), each cell repeated."""
    scales = floats([1, 1, 2, 2])
    return op.resize(x, None, scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def average(x: Var, size: int, stride: int, pad: int = 0) -> Var:
    """Return the mean over windows; padding counts as zero."""
    return op.average_pool(x, kernel_shape=[size, size], strides=[stride, stride], pads=[pad] * 4, count_include_pad=1)
