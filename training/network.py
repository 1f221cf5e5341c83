"""The network: an encoder from picture to embedding, and a decoder from embedding and prompts to masks and scores.

The embedding is maps of several resolutions, as in `mobile_sam_onnx.builtin.layout`. Blocks start close to the
identity, so there are no normalisation layers.
"""

import torch
from torch import Tensor, nn

from mobile_sam_onnx.builtin.layout import (
    CHANNELS,
    CONDITIONS,
    COSTS,
    GUIDES,
    HEAD_WIDTH,
    HEADS,
    KERNEL_WIDTH,
    KERNELS,
    LAYOUT,
    TOKENS,
    WIDTHS,
)
from training.conditioning import Prompts, conditions, kernel_matrices

BOTTOM = 112
POOLED = WIDTHS[2] + 2 * WIDTHS[0] + 4


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


class Decoder(nn.Module):
    """Decoder on 64 x 64 cells; the last step refines to 128 with the picture's guide map."""

    def __init__(self) -> None:
        super().__init__()
        fine, middle, coarse = WIDTHS
        self.enter = Mix(CONDITIONS, fine)
        self.down32, self.stage32 = halve(fine, middle), Stage(middle, 2, 1)
        self.down16, self.stage16 = halve(middle, coarse), Stage(coarse, 2)
        self.down8, self.stage8 = halve(coarse, BOTTOM), Stage(BOTTOM, 2)
        self.up16, self.merge16 = Mix(BOTTOM, coarse), Stage(coarse, 2)
        self.up32, self.merge32 = Mix(coarse, middle), Stage(middle, 2, 1)
        self.up64 = Mix(middle, fine)
        self.finish = nn.Conv2d(fine, fine, 3, padding=1)
        self.cells = Mix(fine, TOKENS * 4)
        self.slopes = Mix(fine, TOKENS * GUIDES)
        self.judge1 = nn.Linear(POOLED, 64)
        self.judge2 = nn.Linear(64, TOKENS)

    def forward(self, maps: dict[str, Tensor], prompt: Prompts) -> tuple[Tensor, Tensor]:
        """Return logits (B * K, 4, 128, 128) and predicted IoU (B * K, 4) from maps of the layout and prompts."""
        batch, prompts = prompt.points.shape[:2]
        given = conditions(maps, kernel_matrices(maps["kernels"], maps["valid"]), prompt)

        def with_image(x: Tensor, name: str) -> Tensor:
            """Add the picture's map `name` to each of its prompts."""
            return x + maps[name].repeat_interleave(prompts, 0)

        x64 = torch.relu(with_image(self.enter(given.flatten(0, 1)), "fine"))
        x32 = self.stage32(with_image(self.down32(x64), "middle"))
        x16 = self.stage16(with_image(self.down16(x32), "coarse"))
        x8 = self.stage8(self.down8(x16))
        x16 = self.merge16(x16 + double(self.up16(x8)))
        x32 = self.merge32(x32 + double(self.up32(x16)))
        x64 = torch.relu(self.finish(x64 + double(self.up64(x32))))

        count = batch * prompts
        # a cell's 2 x 2 pixels stay a dimension of 4 until the end, which avoids copies
        logits = self.cells(x64).reshape(batch, prompts, TOKENS, 4, 64, 64)
        slopes = self.slopes(x64).reshape(batch, prompts, TOKENS, GUIDES, 64, 64)
        guide = nn.functional.pixel_unshuffle(maps["guide"], 2).reshape(batch, 1, GUIDES, 4, 64, 64)
        for slope, shade in zip(slopes.unbind(3), guide.unbind(2), strict=True):
            logits = torch.addcmul(logits, slope[:, :, :, None], shade[:, :, None])
        logits = nn.functional.pixel_shuffle(logits.reshape(count, TOKENS * 4, 64, 64), 2)
        return logits, self.judge(logits, x64, x16)

    def judge(self, logits: Tensor, x64: Tensor, x16: Tensor) -> Tensor:
        """Return the predicted IoU (N, 4) from features inside the masks, without gradients to the masks."""
        chance = torch.sigmoid(nn.functional.avg_pool2d(logits.detach(), 2)).flatten(2)  # (N, 4, 4096)
        cover = chance.sum(2, keepdim=True)
        features = x64.detach().flatten(2).transpose(1, 2)  # (N, 4096, C)
        within = torch.matmul(chance, features) / (cover + 1)
        everywhere = features.mean(1, keepdim=True).expand_as(within)
        broad = x16.mean((2, 3))[:, None].expand(-1, TOKENS, -1)
        sure = (chance**2).sum(2, keepdim=True) / (cover + 1)
        edge = (chance * (1 - chance)).sum(2, keepdim=True) / 256
        firm = (chance > 0.5).to(chance.dtype) * (chance > 0.8).to(chance.dtype)
        stable = firm.sum(2, keepdim=True) / ((chance > 0.2).to(chance.dtype).sum(2, keepdim=True) + 1)
        facts = torch.cat([broad, within, everywhere, sure, edge, stable, cover / 4096], 2)
        per_token = self.judge2(torch.relu(self.judge1(facts)))  # (N, 4 facts, 4 tokens); only the diagonal is used
        own = (per_token * torch.eye(TOKENS, dtype=chance.dtype, device=chance.device)).sum(2)
        return torch.sigmoid(own)


class Segmenter(nn.Module):
    """Encoder and decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()
