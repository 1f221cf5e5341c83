"""Decoder from embedding and prompts to masks and scores: a small U-shaped network over the conditioned maps."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mobile_sam_onnx.builtin.layout import CONDITIONS, GUIDES, TOKENS, WIDTHS
from training.conditioning import Prompts, conditions, kernel_matrices
from training.layers import Mix, Stage, double, halve

BOTTOM = 112
POOLED = WIDTHS[2] + 2 * WIDTHS[0] + 4


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
