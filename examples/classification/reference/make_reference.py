"""Compute reference results with PyTorch and write expected.npz, so that the tests need no PyTorch.

python -m examples.classification.reference.make_reference

Run once with torch 2.13.0 (CPU). The networks are torchvision's bottleneck ResNets in plain torch, with batch norm.
Weights and pixels come from seeded NumPy generators, as in the tests.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional

from examples.classification.architecture import Architecture, random_state
from examples.classification.reference.cases import NETS, pixels

EXPECTED = Path(__file__).with_name("expected.npz")
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

State = dict[str, torch.Tensor]


def logits(images: npt.NDArray[np.uint8], state: State) -> torch.Tensor:
    """Return (N, classes) float32."""
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    x = (x - torch.tensor(MEAN).view(1, 3, 1, 1)) / torch.tensor(DEVIATION).view(1, 3, 1, 1)
    x = _norm(functional.conv2d(x, state["conv1.weight"], stride=2, padding=3), state, "bn1")
    x = functional.max_pool2d(functional.relu(x), 3, stride=2, padding=1)
    for stage in range(1, 5):
        for number in range(len([key for key in state if key.startswith(f"layer{stage}.") and "conv1" in key])):
            x = _bottleneck(x, state, f"layer{stage}.{number}", stride=2 if stage > 1 and number == 0 else 1)
    x = torch.flatten(functional.adaptive_avg_pool2d(x, 1), 1)
    return functional.linear(x, state["fc.weight"], state["fc.bias"])


def _bottleneck(x: torch.Tensor, state: State, name: str, stride: int) -> torch.Tensor:
    y = functional.relu(_norm(functional.conv2d(x, state[f"{name}.conv1.weight"]), state, f"{name}.bn1"))
    y = functional.conv2d(y, state[f"{name}.conv2.weight"], stride=stride, padding=1)
    y = functional.relu(_norm(y, state, f"{name}.bn2"))
    y = _norm(functional.conv2d(y, state[f"{name}.conv3.weight"]), state, f"{name}.bn3")
    if f"{name}.downsample.0.weight" in state:
        x = functional.conv2d(x, state[f"{name}.downsample.0.weight"], stride=stride)
        x = _norm(x, state, f"{name}.downsample.1")
    return functional.relu(x + y)


def _norm(x: torch.Tensor, state: State, name: str) -> torch.Tensor:
    mean, variance, weight, bias = (state[f"{name}.{key}"] for key in ("running_mean", "running_var", "weight", "bias"))
    return functional.batch_norm(x, mean, variance, weight, bias, training=False)


def reference_logits(net: Architecture) -> npt.NDArray[np.float32]:
    """Return the logits of a network with seeded weights for the pictures, (N, classes)."""
    state = {key: torch.from_numpy(value) for key, value in random_state(net).items()}
    with torch.no_grad():
        found: npt.NDArray[np.float32] = logits(pixels(), state).numpy()
    return found


if __name__ == "__main__":
    np.savez_compressed(EXPECTED, **{name: reference_logits(net) for name, net in NETS.items()})
    print(f"wrote {EXPECTED.name} with torch {torch.__version__}")
