"""Building blocks of both networks. Blocks start close to the identity, so there are no normalisation layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Mix(nn.Conv2d):
    """A 1x1 convolution, as a matrix product over channels-last memory, which is faster on a CPU."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__(before, after, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, before, H, W) to (N, after, H, W)."""
        return nn.functional.linear(x.permute(0, 2, 3, 1), self.weight.flatten(1), self.bias).permute(0, 3, 1, 2)


class Block(nn.Module):
    """Residual block: a 5x5 depthwise convolution and two 1x1 ones, with `expansion` times the channels between."""

    def __init__(self, channels: int, expansion: int) -> None:
        super().__init__()
        self.depth = nn.Conv2d(channels, channels, 5, padding=2, groups=channels)
        self.wide = Mix(channels, channels * expansion)
        self.narrow = Mix(channels * expansion, channels)
        nn.init.kaiming_normal_(self.wide.weight, nonlinearity="relu")
        nn.init.normal_(self.depth.weight, std=0.12)
        with torch.no_grad():
            self.depth.weight[:, :, 2, 2] += 0.8
            self.narrow.weight.mul_(0.25)
        for convolution in (self.depth, self.wide, self.narrow):
            nn.init.zeros_(convolution.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, C, H, W)."""
        out: Tensor = x + self.narrow(torch.relu(self.wide(self.depth(x))))
        return out


class Stage(nn.Sequential):
    """Sequence of `count` blocks."""

    def __init__(self, channels: int, count: int, expansion: int = 2) -> None:
        super().__init__(*[Block(channels, expansion) for _ in range(count)])


def halve(before: int, after: int) -> nn.Conv2d:
    """Return a layer that halves the resolution."""
    return nn.Conv2d(before, after, 2, stride=2)


def double(x: Tensor) -> Tensor:
    """Double the resolution by repeating cells."""
    return nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")
