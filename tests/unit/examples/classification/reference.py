"""Networks and pictures to compare with PyTorch, whose results are in expected.npz, so that the tests need no PyTorch.

python -m tests.unit.examples.classification.reference

computes them, with torch 2.13.0 (CPU). The networks are torchvision's bottleneck ResNets in plain torch.
"""

from pathlib import Path
from typing import Any

import numpy as np

from examples.classification.architecture import NARROW, Architecture, random_state

EXPECTED = Path(__file__).with_name("expected.npz")
NETS = {
    "wide": NARROW,
    "ordinary": Architecture(stem=8, planes=(8, 16, 24, 32), depths=(2, 1, 1, 2), width_per_group=64, classes=10),
}


def pixels() -> np.ndarray:
    """Return three pictures, (3, 224, 224, 3) uint8: noise, a gradient, and black."""
    noise = np.random.Generator(np.random.PCG64(0)).integers(0, 256, (224, 224, 3), np.uint8)
    ramp = np.arange(224, dtype=np.uint8)
    gradient = np.stack(np.broadcast_arrays(ramp[:, None], ramp[None, :], np.uint8(90)), axis=-1)
    return np.stack([noise, gradient, np.zeros_like(noise)])


def logits(net: Architecture) -> np.ndarray:
    """Return PyTorch's logits of a network with seeded weights for the pictures, (N, classes) float32."""
    import torch
    from torch.nn import functional

    state = {key: torch.from_numpy(value) for key, value in random_state(net).items()}

    def conv(x: Any, name: str, norm: str, stride: int = 1) -> Any:
        weight = state[f"{name}.weight"]
        x = functional.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
        mean, variance, scale, shift = (
            state[f"{norm}.{key}"] for key in ("running_mean", "running_var", "weight", "bias")
        )
        return functional.batch_norm(x, mean, variance, scale, shift, training=False)

    x = torch.from_numpy(pixels()).permute(0, 3, 1, 2).float() / 255
    mean, deviation = (
        torch.tensor(values).view(1, 3, 1, 1) for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    x = functional.max_pool2d(functional.relu(conv((x - mean) / deviation, "conv1", "bn1", 2)), 3, stride=2, padding=1)
    for stage, depth in enumerate(net.depths, 1):
        for number in range(depth):
            block, stride = f"layer{stage}.{number}", 2 if stage > 1 and number == 0 else 1
            y = functional.relu(conv(x, f"{block}.conv1", f"{block}.bn1"))
            y = functional.relu(conv(y, f"{block}.conv2", f"{block}.bn2", stride))
            y = conv(y, f"{block}.conv3", f"{block}.bn3")
            if f"{block}.downsample.0.weight" in state:
                x = conv(x, f"{block}.downsample.0", f"{block}.downsample.1", stride)
            x = functional.relu(x + y)
    x = torch.flatten(functional.adaptive_avg_pool2d(x, 1), 1)
    found: np.ndarray = functional.linear(x, state["fc.weight"], state["fc.bias"]).numpy()
    return found


if __name__ == "__main__":
    np.savez_compressed(EXPECTED, **{name: logits(net) for name, net in NETS.items()})
