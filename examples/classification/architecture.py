"""Tensor names, shapes and untrained weights of torchvision's bottleneck ResNets, including wide ones."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Shapes = Iterator[tuple[str, tuple[int, ...]]]

EXPANSION = 4
BRANCH_SCALE = 0.25
"""Scale of an untrained block's residual branch, so that dozens of blocks do not overflow."""


@dataclass(frozen=True)
class Architecture:
    """Dimensions of a network; the defaults are those of `wide_resnet101_2`."""

    stem: int = 64
    planes: tuple[int, ...] = (64, 128, 256, 512)
    depths: tuple[int, ...] = (3, 4, 23, 3)
    width_per_group: int = 128
    """64 for ordinary ResNets, 128 for `wide_resnet50_2` and `wide_resnet101_2`."""
    classes: int = 1000

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape per name of all tensors needed for inference."""
        return dict(self._all())

    def _all(self) -> Shapes:
        yield from _convolution("conv1", self.stem, 3, 7)
        yield from _norm("bn1", self.stem)
        channels = self.stem
        for stage, (planes, depth) in enumerate(zip(self.planes, self.depths, strict=True), 1):
            inner, outputs = planes * self.width_per_group // 64, planes * EXPANSION
            for number in range(depth):
                block = f"layer{stage}.{number}"
                for index, (out, into, size) in enumerate(
                    ((inner, channels, 1), (inner, inner, 3), (outputs, inner, 1)), 1
                ):
                    yield from _convolution(f"{block}.conv{index}", out, into, size)
                    yield from _norm(f"{block}.bn{index}", out)
                if number == 0:
                    yield from _convolution(f"{block}.downsample.0", outputs, channels, 1)
                    yield from _norm(f"{block}.downsample.1", outputs)
                channels = outputs
        yield "fc.weight", (self.classes, channels)
        yield "fc.bias", (self.classes,)


NARROW = Architecture(stem=16, planes=(8, 16, 32, 64), depths=(1, 2, 2, 1))
"""Small network of the same family, built and run within seconds."""


def random_state(architecture: Architecture, seed: int = 0) -> dict[str, npt.NDArray[np.generic]]:
    """Return untrained float32 weights, identical on every machine, with non-trivial batch norms."""
    return {key: _random(key, shape, seed) for key, shape in architecture.shapes().items()}


def _random(key: str, shape: tuple[int, ...], seed: int) -> npt.NDArray[np.generic]:
    generator = np.random.Generator(np.random.PCG64(zlib.crc32(f"{seed}:{key}".encode())))
    values = generator.standard_normal(shape, dtype=np.float32)
    if len(shape) > 1:
        gain = 1.0 if key == "fc.weight" else 2.0  # a ReLU follows each convolution and halves the variance
        return values * np.float32(math.sqrt(gain / math.prod(shape[1:])))
    if key.endswith(("running_mean", ".bias")):
        return values * np.float32(0.1)
    scale = np.float32(1.0) + np.float32(0.25) * np.tanh(values)
    return np.asarray(scale * np.float32(BRANCH_SCALE) if key.endswith("bn3.weight") else scale)


def _convolution(name: str, outputs: int, inputs: int, size: int) -> Shapes:
    yield f"{name}.weight", (outputs, inputs, size, size)


def _norm(name: str, channels: int) -> Shapes:
    for key in ("weight", "bias", "running_mean", "running_var"):
        yield f"{name}.{key}", (channels,)
