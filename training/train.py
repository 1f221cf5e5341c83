"""Training of the built-in weights: `python -m training.train --run DIR --minutes 180`.

A step has interactive rounds: a first prompt, then corrections of the prediction. A later run resumes from the last
checkpoint. The learning rate falls along a cosine over `--minutes`.
"""

import argparse
import math
import time
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from mobile_sam_onnx.builtin.layout import MASK_CLAMP
from training.batches import Batch, correct, draw_batch
from training.conditioning import Prompts
from training.network import Segmenter
from training.textures import TextureBank

AVERAGE = 0.998  # decay of the running average of the weights, which is exported
IMAGES, PROMPTS, ROUNDS = 4, 6, 2  # images in a step, prompts per image, predictions per prompt
PEAK_RATE = 1e-3
BANK_STEPS = 1000  # steps with the same textures
SAVE_INTERVAL_STEPS = 100
REPORT_INTERVAL_STEPS = 25


def learning_rate(spent: float, total: float, step: int) -> float:
    """Return the learning rate: warm-up over 150 steps, then a cosine over the training time."""
    cosine = 0.5 * (1 + math.cos(math.pi * min(spent / total, 1.0)))
    return PEAK_RATE * min(1.0, (step + 1) / 150) * (0.02 + 0.98 * cosine)


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


class Trainer:
    """Model, optimizer and counters, kept in a checkpoint."""

    def __init__(self, checkpoint: Path, seconds: float) -> None:
        self.checkpoint, self.seconds = checkpoint, seconds
        torch.manual_seed(0)
        self.model = Segmenter()
        self.model.to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=PEAK_RATE, betas=(0.9, 0.99), weight_decay=0.01)
        self.average = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.step, self.spent = 0, 0.0
        if checkpoint.exists():
            kept = torch.load(checkpoint, weights_only=True)
            self.model.load_state_dict(kept["model"])
            self.optimizer.load_state_dict(kept["optimizer"])
            self.average, self.step, self.spent = kept["average"], kept["step"], kept["spent"]
        self.bank = TextureBank(self.step // BANK_STEPS)
        self.smooth: dict[str, float] = {}

    def advance(self) -> None:
        """Run one training step."""
        begun = time.monotonic()
        if self.step % BANK_STEPS == 0:
            self.bank = TextureBank(self.step // BANK_STEPS)
        rng = np.random.default_rng([0, self.step])
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.spent, self.seconds, self.step)
        self.optimizer.zero_grad()
        loss, report = rounds(self.model, draw_batch(rng, self.bank, IMAGES, PROMPTS), rng, ROUNDS)
        torch.autograd.backward(loss)
        norm = float(nn.utils.clip_grad_norm_(self.model.parameters(), 1.0))
        if math.isfinite(norm):
            self.optimizer.step()
        self.step += 1
        decay = min(AVERAGE, self.step / (self.step + 20))
        with torch.no_grad():
            for name, value in self.model.state_dict().items():
                self.average[name].lerp_(value, 1 - decay)
        for name, values in {**report, "loss": loss.detach()[None]}.items():
            if values.numel():
                mean = float(values.mean())
                self.smooth[name] = 0.98 * self.smooth.get(name, mean) + 0.02 * mean
        self.spent += min(time.monotonic() - begun, 30.0)  # do not count pauses

    def save(self) -> None:
        """Write the checkpoint atomically."""
        state = {"model": self.model.state_dict(), "average": self.average, "optimizer": self.optimizer.state_dict()}
        partial = self.checkpoint.with_suffix(".partial")
        torch.save({**state, "step": self.step, "spent": self.spent}, partial)
        partial.replace(self.checkpoint)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="folder for the checkpoint")
    parser.add_argument("--minutes", type=float, required=True, help="total training time, including earlier runs")
    given = parser.parse_args()
    given.run.mkdir(parents=True, exist_ok=True)
    cv2.setNumThreads(1)
    trainer = Trainer(given.run / "last.pt", given.minutes * 60)
    with tqdm(total=round(trainer.seconds), initial=round(trainer.spent), unit="s", mininterval=10) as bar:
        while trainer.spent < trainer.seconds:
            trainer.advance()
            bar.update(round(trainer.spent) - bar.n)
            if trainer.step % REPORT_INTERVAL_STEPS == 0:
                figures = " ".join(f"{name} {value:.3f}" for name, value in trainer.smooth.items())
                bar.write(f"{trainer.step} {trainer.spent:.0f}s {figures}")
            if trainer.step % SAVE_INTERVAL_STEPS == 0:
                trainer.save()
    trainer.save()


if __name__ == "__main__":
    main()
