"""Encoder from picture to embedding: maps of several resolutions, as in `mobile_sam_onnx.builtin.layout`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mobile_sam_onnx.builtin.layout import (
    CHANNELS,
    COSTS,
    GUIDES,
    HEAD_WIDTH,
    HEADS,
    KERNEL_WIDTH,
    KERNELS,
    LAYOUT,
    WIDTHS,
)  # fmt: skip
from training.layers import Mix, Stage, double, halve


def pack(maps: dict[str, Tensor]) -> Tensor:
    """Pack maps by name, each (N, C, S, S), into an embedding (N, 256, 64, 64)."""
    batch = maps["valid"].shape[0]
    parts = [maps[name].reshape(batch, -1, 64, 64) for name, _, _ in LAYOUT]
    used = sum(part.shape[1] for part in parts)
    parts.append(parts[0].new_zeros(batch, CHANNELS - used, 64, 64))
    return torch.cat(parts, 1)


def opponent(rgb: Tensor) -> Tensor:
    """Convert RGB 0..1, (N, 3, H, W), to lightness, red-green and yellow-blue, each about -2..2."""
    red, green, blue = rgb[:, :1], rgb[:, 1:2], rgb[:, 2:3]
    light = (red + green + blue) * (4 / 3) - 2
    return torch.cat([light, (red - green) * 6, (red + green) * 3 - blue * 6], 1)


class Encoder(nn.Module):
    """U-shaped network over the picture at 256 pixels per side."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(6, 20, 3, stride=2, padding=1)
        self.stem2 = nn.Conv2d(20, 20, 3, padding=1)
        self.guide = Mix(20, GUIDES)
        self.down64, self.stage64 = halve(20, 40), Stage(48, 2)
        self.down32, self.stage32 = halve(48, 96), Stage(96, 3)
        self.down16, self.stage16 = halve(96, 160), Stage(160, 4)
        self.down8, self.stage8 = halve(160, 192), Stage(192, 3)
        self.up16, self.merge16 = Mix(192, 160), Stage(160, 1)
        self.up32, self.merge32 = Mix(160, 96), Stage(96, 1)
        self.up64, self.merge64 = Mix(96, 48), Stage(48, 1)
        self.likeness = Mix(48 + 8, HEADS * HEAD_WIDTH)
        self.costs = Mix(48 + 6, 2 * COSTS)
        self.fine = Mix(48 + 8, WIDTHS[0])
        self.middle = Mix(96, WIDTHS[1])
        self.coarse = Mix(160, WIDTHS[2])
        self.kernels = Mix(96, KERNELS * KERNEL_WIDTH)
        with torch.no_grad():
            self.likeness.weight.mul_(2)
            self.costs.bias.fill_(-2.5)
            self.costs.weight[:, 48:] = 0
            for cost in range(COSTS):
                self.costs.weight[cost, 48:51] = 0.5 * (cost + 1)
                self.costs.weight[COSTS + cost, 51:54] = 0.5 * (cost + 1)

    def forward(self, rgb: Tensor, valid: Tensor) -> dict[str, Tensor]:
        """Return the maps of `LAYOUT` for `rgb` (N, 3, 256, 256) 0..1, zero where not valid, and `valid`
        (N, 1, 256, 256), the share of each pixel inside the picture."""
        pool = nn.functional.avg_pool2d
        colour = opponent(rgb) * valid
        across = torch.linspace(-1, 1, 256, device=rgb.device).expand(rgb.shape[0], 1, 256, 256)
        down = across.transpose(2, 3)
        x = torch.relu(self.stem(torch.cat([colour, valid, across * valid, down * valid], 1)))
        x = torch.relu(self.stem2(x))
        guide = self.guide(x)

        share = pool(valid, 4)
        inside = (share > 0).to(rgb.dtype)
        mean = pool(colour, 4) / torch.clamp(share, min=0.01)
        square = pool(colour[:, :1] ** 2, 4) / torch.clamp(share, min=0.01)
        spread = torch.sqrt(torch.clamp(square - mean[:, :1] ** 2, min=0) + 1e-3) * 4
        near = torch.cat([mean, spread], 1) * inside
        around = pool(near, 5, 1, 2) / torch.clamp(pool(inside, 5, 1, 2), min=0.01) * inside
        plain = torch.cat([near, around], 1)  # (N, 8, 64, 64): colour and roughness without learning
        left = (mean - nn.functional.pad(mean, (1, 0, 0, 0))[..., :-1]).abs()
        upper = (mean - nn.functional.pad(mean, (0, 0, 1, 0))[..., :-1, :]).abs()

        x64 = self.stage64(torch.cat([torch.relu(self.down64(x)), plain], 1))
        x32 = self.stage32(self.down32(x64))
        x16 = self.stage16(self.down16(x32))
        x8 = self.stage8(self.down8(x16))
        x16 = self.merge16(x16 + double(self.up16(x8)))
        x32 = self.merge32(x32 + double(self.up32(x16)))
        x64 = self.merge64(x64 + double(self.up64(x32)))
        rich = torch.cat([x64, plain], 1)
        return {
            "likeness": self.likeness(rich),
            "costs": nn.functional.softplus(self.costs(torch.cat([x64, left, upper], 1))) + 0.005,
            "fine": self.fine(rich),
            "middle": self.middle(x32),
            "coarse": self.coarse(x16),
            "kernels": self.kernels(x32),
            "guide": guide,
            "valid": inside,
        }
