"""Tensor names, shapes and untrained weights of torchvision's bottleneck ResNets, including wide ones."""

import math
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Shapes = dict[str, tuple[int, ...]]

EXPANSION = 4
BRANCH_SCALE = 0.25
"""Scale of an untrained block's residual branch, so that dozens of blocks do not overflow."""


@dataclass(frozen=True)
class Architecture:
    """Dimensions of a network; the defaults describe `wide_resnet101_2`."""

    stem: int = 64
    planes: tuple[int, ...] = (64, 128, 256, 512)
    depths: tuple[int, ...] = (3, 4, 23, 3)
    width_per_group: int = 128
    """64 for ordinary ResNets, 128 for `wide_resnet50_2` and `wide_resnet101_2`."""
    classes: int = 1000

    def shapes(self) -> Shapes:
        """Return the shape per name of all tensors needed for inference."""
        found = _layer("conv1", "bn1", self.stem, 3, 7)
        channels = self.stem
        for stage, (planes, depth) in enumerate(zip(self.planes, self.depths, strict=True), 1):
            inner, outputs = planes * self.width_per_group // 64, planes * EXPANSION
            for number in range(depth):
                block = f"layer{stage}.{number}"
                found |= _layer(f"{block}.conv1", f"{block}.bn1", inner, channels, 1)
                found |= _layer(f"{block}.conv2", f"{block}.bn2", inner, inner, 3)
                found |= _layer(f"{block}.conv3", f"{block}.bn3", outputs, inner, 1)
                if number == 0:
                    found |= _layer(f"{block}.downsample.0", f"{block}.downsample.1", outputs, channels, 1)
                channels = outputs
        return found | {"fc.weight": (self.classes, channels), "fc.bias": (self.classes,)}


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


def _layer(convolution: str, norm: str, outputs: int, inputs: int, size: int) -> Shapes:
    norms = {f"{norm}.{key}": (outputs,) for key in ("weight", "bias", "running_mean", "running_var")}
    return {f"{convolution}.weight": (outputs, inputs, size, size), **norms}
