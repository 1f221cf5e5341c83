"""Losses for the single mask, the best of three candidates, and the predicted scores."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def overlap(logits: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Return the IoU (N, T) of `logits` (N, T, S, S) > 0 with `target` (N, S, S) > 0.5, inside `valid` (N, S, S)."""
    answer = (logits > 0) & (valid[:, None] > 0)
    wanted = (target > 0.5)[:, None]
    shared = (answer & wanted).sum((-1, -2)).float()
    return shared / ((answer | wanted).sum((-1, -2)).float() + 1e-6)


def mask_loss(logits: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Return the mean binary cross-entropy plus one minus the soft IoU inside the valid part, (N, T)."""
    goal = target[:, None].expand_as(logits)
    seen = valid[:, None]
    cross = nn.functional.binary_cross_entropy_with_logits(logits, goal, reduction="none") * seen
    chance = torch.sigmoid(logits) * seen
    shared = (chance * goal).sum((-1, -2))
    union = (chance + goal).sum((-1, -2)) - shared
    return cross.sum((-1, -2)) / seen.sum((-1, -2)) + 1 - shared / (union + 1e-6)


def answer_loss(logits: Tensor, scores: Tensor, target: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss and each mask's IoU (N, 4), for `logits` (N, 4, S, S) and predicted IoU `scores` (N, 4)."""
    each = mask_loss(logits, target, valid)
    found = overlap(logits.detach(), target, valid)
    candidates = each[:, 1:]
    best = candidates.amin(1)
    loss = each[:, 0].mean() + best.mean() + 0.08 * candidates.mean() + 2 * ((scores - found) ** 2).mean()
    return loss, found
