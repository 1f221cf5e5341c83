"""Keys, shapes and untrained weights of torchvision's bottleneck ResNets, including wide ones."""

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from sam_onnx.random_weights import Shape, seeded_normal

EXPANSION = 4
BRANCH_SCALE = 0.25
"""Scale of an untrained block's residual branch, so that dozens of blocks do not overflow."""


def resnet_shapes(
    stem: int, planes: Shape, depths: Shape, width_per_group: int = 128, classes: int = 1000
) -> dict[str, Shape]:
    """Return the shape by key of all tensors of a network.

    Args:
        stem: channels of the first convolution.
        planes: base channels per stage.
        depths: blocks per stage.
        width_per_group: 64 for ordinary ResNets, 128 for wide ones.
        classes: number of classes.
    """
    layers: dict[tuple[str, str], Shape] = {("conv1", "bn1"): (stem, 3, 7, 7)}
    channels = stem
    for stage, (base, depth) in enumerate(zip(planes, depths, strict=True), 1):
        inner, outputs = base * width_per_group // 64, base * EXPANSION
        for block in (f"layer{stage}.{number}" for number in range(depth)):
            layers[f"{block}.conv1", f"{block}.bn1"] = (inner, channels, 1, 1)
            layers[f"{block}.conv2", f"{block}.bn2"] = (inner, inner, 3, 3)
            layers[f"{block}.conv3", f"{block}.bn3"] = (outputs, inner, 1, 1)
            if block.endswith(".0"):
                layers[f"{block}.downsample.0", f"{block}.downsample.1"] = (outputs, channels, 1, 1)
            channels = outputs
    found: dict[str, Shape] = {"fc.weight": (classes, channels), "fc.bias": (classes,)}
    for (convolution, norm), shape in layers.items():
        found[f"{convolution}.weight"] = shape
        found |= {
            f"{norm}.{key}": shape[:1] for key in ("weight", "bias", "running_mean", "running_var")
        }
    return found


NARROW = resnet_shapes(stem=16, planes=(8, 16, 32, 64), depths=(1, 2, 2, 1))
"""Small wide network, built and run within seconds."""


def random_state(shapes: Mapping[str, Shape], seed: int = 0) -> dict[str, npt.NDArray[np.generic]]:
    """Return untrained float32 weights, identical on every machine, with non-trivial batch
    norms.
    """
    return {key: _random(key, shape, seed) for key, shape in shapes.items()}


def _random(key: str, shape: Shape, seed: int) -> npt.NDArray[np.generic]:
    values = seeded_normal(key, shape, seed)
    if len(shape) > 1:
        # A ReLU follows each convolution and halves the variance.
        gain = 1.0 if key == "fc.weight" else 2.0
        return values * np.float32(math.sqrt(gain / math.prod(shape[1:])))
    if key.endswith(("running_mean", ".bias")):
        return values * np.float32(0.1)
    scale = np.float32(1.0) + np.float32(0.25) * np.tanh(values)
    return np.asarray(scale * np.float32(BRANCH_SCALE) if key.endswith("bn3.weight") else scale)
