"""Training of the built-in weights: `python -m training.train --run DIR --minutes 180`.

A later run resumes from the last checkpoint. The learning rate falls along a cosine over `--minutes`.
"""

import argparse
import math
import time
from pathlib import Path

import cv2
import numpy as np
import torch
from torch import nn
from tqdm import tqdm

from training.batches import draw_batch
from training.network import Segmenter
from training.rounds import rounds
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
