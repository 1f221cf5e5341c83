"""Networks and pictures whose results in PyTorch are in expected.npz, so that the tests need no
PyTorch.

expected.npz has the logits of torchvision's bottleneck ResNets, written in plain torch 2.13.0 (CPU)
with these weights: `logits` in this file as of commit c4b53cf.
"""

from pathlib import Path

import numpy as np

from examples.classification.untrained import NARROW, resnet_shapes

EXPECTED = Path(__file__).with_name("expected.npz")
NETS = {
    "wide": NARROW,
    "ordinary": resnet_shapes(
        stem=8, planes=(8, 16, 24, 32), depths=(2, 1, 1, 2), width_per_group=64, classes=10
    ),
}


def pixels() -> np.ndarray:
    """Return three pictures, (3, 224, 224, 3) uint8: noise, a gradient, and black."""
    noise = np.random.Generator(np.random.PCG64(0)).integers(0, 256, (224, 224, 3), np.uint8)
    ramp = np.arange(224, dtype=np.uint8)
    gradient = np.stack(np.broadcast_arrays(ramp[:, None], ramp[None, :], np.uint8(90)), axis=-1)
    return np.stack([noise, gradient, np.zeros_like(noise)])
