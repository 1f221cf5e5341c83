"""What an answer should be: the single mask right, one of three candidates right, and every score honest."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def overlap(logits: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """(N, T) IoU of the masks `logits` (N, T, S, S) > 0 with `target` (N, S, S) > 0.5, where `valid` (N, S, S)."""
    answer = (logits > 0) & (valid[:, None] > 0)
    wanted = (target > 0.5)[:, None]
    shared = (answer & wanted).sum((-1, -2)).float()
    return shared / ((answer | wanted).sum((-1, -2)).float() + 1e-6)


def mask_loss(logits: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """(N, T) mean binary cross-entropy plus one minus the soft IoU, in the valid part."""
    goal = target[:, None].expand_as(logits)
    seen = valid[:, None]
    cross = nn.functional.binary_cross_entropy_with_logits(logits, goal, reduction="none") * seen
    chance = torch.sigmoid(logits) * seen
    shared = (chance * goal).sum((-1, -2))
    union = (chance + goal).sum((-1, -2)) - shared
    return cross.sum((-1, -2)) / seen.sum((-1, -2)) + 1 - shared / (union + 1e-6)


def answer_loss(logits: Tensor, scores: Tensor, target: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Loss, and the IoU (N, 4) of each mask: `logits` (N, 4, S, S), `scores` (N, 4) predicted IoU."""
    each = mask_loss(logits, target, valid)
    found = overlap(logits.detach(), target, valid)
    candidates = each[:, 1:]
    best = candidates.amin(1)
    loss = each[:, 0].mean() + best.mean() + 0.08 * candidates.mean() + 2 * ((scores - found) ** 2).mean()
    return loss, found
