"""Pieces of graph that both graphs share; names of tensors in the state are dotted paths, as PyTorch writes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import spox.opset.ai.onnx.v17 as op
from numpy.typing import ArrayLike, NDArray
from spox import Var

from mobile_sam_onnx.builtin.weights import State


def floats(value: ArrayLike) -> Var:
    """A float32 constant."""
    return op.const(np.asarray(value, np.float32))


def ints(values: Sequence[int]) -> Var:
    """An int64 vector, as shapes, axes and slices are given."""
    return op.const(np.asarray(values, np.int64))


def reshape(x: Var, *shape: int) -> Var:
    """Reshape; 0 keeps a dimension, -1 is worked out."""
    return op.reshape(x, ints(shape))


def part(x: Var, axis: int, start: int, end: int) -> Var:
    """x[start:end] along `axis`; an `end` beyond the size means all the rest."""
    return op.slice(x, ints([start]), ints([end]), ints([axis]))


def conv(state: State, name: str, x: Var, stride: int = 1, groups: int = 1) -> Var:
    """The convolution `name` with bias; a stride equal to the kernel takes no padding, any other keeps the size."""
    weight: NDArray[np.float32] = state[f"{name}.weight"]
    size = weight.shape[-1]
    pad = 0 if size == stride else size // 2
    return op.conv(
        x, floats(weight), floats(state[f"{name}.bias"]), kernel_shape=[size, size], strides=[stride, stride],
        pads=[pad] * 4, group=groups,
    )  # fmt: skip


def stage(state: State, name: str, x: Var) -> Var:
    """All blocks of a stage: x + narrow(relu(wide(depth(x)))), one after the other."""
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
    """(N, C, H, W) to (N, C, 2 H, 2 W), each cell repeated."""
    scales = floats([1, 1, 2, 2])
    return op.resize(x, None, scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def average(x: Var, size: int, stride: int, pad: int = 0) -> Var:
    """Mean over windows; what lies beyond the border counts as zero."""
    return op.average_pool(x, kernel_shape=[size, size], strides=[stride, stride], pads=[pad] * 4, count_include_pad=1)
