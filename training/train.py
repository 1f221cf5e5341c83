"""Training of the built-in weights: `python -m training.train --shards DIR --run DIR --minutes 80`.

A later run resumes from the last checkpoint.
Two single-threaded processes share every step, which is faster on two cores than one process with two threads, also
under other load. The learning rate falls along a cosine over `--minutes`.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file
from torch import nn
from tqdm import tqdm

from training.batches import Batches
from training.rounds import Segmenter, rounds

AVERAGE = 0.998  # decay of the running average of the weights, which is exported
SAVE_INTERVAL_STEPS = 100
REPORT_INTERVAL_STEPS = 25


def share_gradients(parameters: list[nn.Parameter], world: int) -> None:
    """Average gradients over the processes."""
    flat = torch.cat([p.grad.reshape(-1) if p.grad is not None else torch.zeros(p.numel()) for p in parameters])
    dist.all_reduce(flat)
    flat /= world
    start = 0
    for parameter in parameters:
        parameter.grad = flat[start : start + parameter.numel()].reshape(parameter.shape).clone()
        start += parameter.numel()


def learning_rate(spent: float, total: float, step: int, peak: float) -> float:
    """Return the learning rate: warm-up over 150 steps, then a cosine over the training time."""
    return peak * min(1.0, (step + 1) / 150) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(spent / total, 1.0))))


def read_start(path: Path) -> dict[str, Any]:
    """Read a checkpoint, or exported weights without optimizer state and counters."""
    if path.suffix != ".safetensors":
        kept: dict[str, Any] = torch.load(path, weights_only=True)
        return kept
    weights = {name: value.float() for name, value in load_file(path).items()}
    return {"model": weights, "average": {name: value.clone() for name, value in weights.items()}}


class Trainer:
    """Model, optimizer and counters of one process."""

    def __init__(self, rank: int, arguments: argparse.Namespace) -> None:
        self.rank, self.arguments = rank, arguments
        torch.manual_seed(arguments.seed)
        self.model = Segmenter()
        self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.parameters = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.01)
        self.average = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.step, self.spent = 0, 0.0
        self.checkpoint: Path = arguments.run / "last.pt"
        start = self.checkpoint if self.checkpoint.exists() else arguments.start
        if start:
            kept = read_start(start)
            self.model.load_state_dict(kept["model"])
            self.average = kept["average"]
            if start == self.checkpoint:
                self.optimizer.load_state_dict(kept["optimizer"])
                self.step, self.spent = kept["step"], kept["spent"]
        self.batches = Batches(arguments.shards, arguments.images, arguments.prompts)
        self.smooth: dict[str, float] = {}

    def advance(self) -> None:
        """Run one training step."""
        begun = time.monotonic()
        arguments = self.arguments
        rng = np.random.default_rng([arguments.seed, self.rank, self.step])
        rate = learning_rate(self.spent, arguments.minutes * 60, self.step, arguments.rate)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        loss, report = rounds(self.model, self.batches.draw(rng), rng, arguments.rounds)
        torch.autograd.backward(loss)
        share_gradients(self.parameters, dist.get_world_size())
        norm = float(nn.utils.clip_grad_norm_(self.parameters, 1.0))
        if math.isfinite(norm):
            self.optimizer.step()
        self.step += 1
        decay = min(AVERAGE, self.step / (self.step + 20))
        with torch.no_grad():
            for name, value in self.model.state_dict().items():
                self.average[name].lerp_(value, 1 - decay)
        for name, values in {**report, "loss": loss.detach()[None], "norm": torch.tensor([norm])}.items():
            if values.numel():
                mean = float(values.mean())
                self.smooth[name] = 0.98 * self.smooth.get(name, mean) + 0.02 * mean
        self.spent += min(time.monotonic() - begun, 30.0)  # do not count pauses
        if self.step % SAVE_INTERVAL_STEPS == 0:
            self.batches.refresh()
            self.save()

    def save(self) -> None:
        """Write a checkpoint atomically, in the first process only."""
        if self.rank == 0:
            state = {
                "model": self.model.state_dict(),
                "average": self.average,
                "optimizer": self.optimizer.state_dict(),
            }
            partial = self.checkpoint.with_suffix(".partial")
            torch.save({**state, "step": self.step, "spent": self.spent}, partial)
            partial.replace(self.checkpoint)


def work(rank: int, arguments: argparse.Namespace) -> None:
    """Run the training loop of one process."""
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(arguments.port))
    dist.init_process_group("gloo", rank=rank, world_size=arguments.processes, timeout=timedelta(hours=12))
    trainer = Trainer(rank, arguments)
    total = arguments.minutes * 60
    with tqdm(total=round(total), initial=round(trainer.spent), unit="s", disable=rank > 0, mininterval=10) as bar:
        over = torch.tensor(float(trainer.spent >= total))
        while not over.item():
            trainer.advance()
            bar.update(round(trainer.spent) - bar.n)
            if rank == 0 and trainer.step % REPORT_INTERVAL_STEPS == 0:
                line = " ".join(f"{name} {value:.3f}" for name, value in trainer.smooth.items())
                bar.write(f"{trainer.step} {trainer.spent:.0f}s {line}")
            over = torch.tensor(float(trainer.spent >= total))
            dist.broadcast(over, 0)
    trainer.save()
    dist.destroy_process_group()


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=Path, required=True, help="folder written by training.shards")
    parser.add_argument("--run", type=Path, required=True, help="folder for checkpoints")
    parser.add_argument("--minutes", type=float, required=True, help="total training time, including earlier runs")
    parser.add_argument("--start", type=Path, help="checkpoint or .safetensors with initial weights")
    parser.add_argument("--rate", type=float, default=1e-3, help="peak learning rate")
    parser.add_argument("--images", type=int, default=2, help="images per process and step")
    parser.add_argument("--prompts", type=int, default=6, help="prompts per image")
    parser.add_argument("--rounds", type=int, default=2, help="predictions per prompt: the first and corrected ones")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--port", type=int, default=29517)
    arguments = parser.parse_args()
    arguments.run.mkdir(parents=True, exist_ok=True)
    context = mp.get_context("spawn")
    others = [context.Process(target=work, args=(rank, arguments)) for rank in range(1, arguments.processes)]
    for other in others:
        other.start()
    work(0, arguments)
    for other in others:
        other.join()


if __name__ == "__main__":
    main()
