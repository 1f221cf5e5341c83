"""Interactive rounds of a training step, a first prompt and then corrections of the prediction, and their loss."""

import numpy as np
import torch
from torch import Tensor, nn

from mobile_sam_onnx.builtin.layout import MASK_CLAMP
from training.batches import Batch, correct
from training.conditioning import Prompts
from training.network import Segmenter


def mask_for_feedback(logits: Tensor, batch: int) -> Tensor:
    """Convert logits (N, 128, 128) to the decoder's earlier mask, (B, K, 64, 64) probabilities."""
    pooled = nn.functional.avg_pool2d(logits[:, None].clamp(-MASK_CLAMP, MASK_CLAMP), 2)
    return torch.sigmoid(pooled).reshape(batch, -1, 64, 64)


def rounds(model: Segmenter, batch: Batch, rng: np.random.Generator, count: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the loss over a first prediction and `count` - 1 corrected ones, and IoUs to report."""
    size, prompts = batch.targets.shape[:2]
    images = torch.from_numpy(batch.images).permute(0, 3, 1, 2).float() / 255
    valid = torch.from_numpy(batch.valid)[:, None].float()
    maps = model.encoder(images.contiguous(memory_format=torch.channels_last), valid)
    target = torch.from_numpy(batch.targets).flatten(0, 1)
    seen = nn.functional.avg_pool2d(valid, 2).expand(-1, prompts, -1, -1).flatten(0, 1)
    mask, has_mask = torch.zeros(size, prompts, 64, 64), torch.zeros(size, prompts)
    points, labels = batch.points.copy(), batch.labels.copy()
    total, report = torch.zeros(()), {}
    for number in range(count):
        prompt = Prompts(torch.from_numpy(points), torch.from_numpy(labels), mask, has_mask)
        logits, scores = model.decoder(maps, prompt)
        loss, found = answer_loss(logits, scores, target, seen)
        total = total + loss
        if number == 0:
            boxed = torch.from_numpy(batch.labels[:, :, 1].flatten() == 2)
            report = {"click": found[~boxed, 0], "three": found[~boxed, 1:].amax(1), "box": found[boxed, 0]}
        else:
            report[f"again{number}"] = found[:, 0]
        report[f"off{number}"] = (scores.detach() - found).abs()[:, 0]
        if number + 1 < count:
            with torch.no_grad():
                given = torch.from_numpy((rng.random((size, prompts)) < 0.8).astype(np.float32))
                mask = mask_for_feedback(logits[:, 0].detach(), size) * given[..., None, None]
                has_mask = given
            answers = (logits[:, 0] > 0).numpy() & (seen > 0).numpy()
            for at in range(size * prompts):
                index = divmod(at, prompts)
                points[index], labels[index] = points[index].copy(), labels[index].copy()
                correct(rng, points[index], labels[index], answers[at], batch.targets[index] > 0.5)
    return total / count, report


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
