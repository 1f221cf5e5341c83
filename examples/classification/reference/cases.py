"""Networks and pictures of the reference, generated with NumPy only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from examples.classification.architecture import NARROW, Architecture

NETS = {
    "wide": NARROW,
    "ordinary": Architecture(stem=8, planes=(8, 16, 24, 32), depths=(2, 1, 1, 2), width_per_group=64, classes=10),
}


def pixels(seed: int = 0) -> npt.NDArray[np.uint8]:
    """Return three pictures, (3, 224, 224, 3) uint8: noise, a gradient, and black."""
    generator = np.random.Generator(np.random.PCG64(seed))
    noise = generator.integers(0, 256, (224, 224, 3), np.uint8)
    ramp = np.arange(224, dtype=np.uint8)
    gradient = np.stack(np.broadcast_arrays(ramp[:, None], ramp[None, :], np.uint8(90)), axis=-1)
    return np.stack([noise, gradient, np.zeros_like(noise)])
