"""Train: `python -m training.train --shards DIR --run DIR --minutes 80`. Run it again to go on from its last checkpoint.

Two processes of one thread each share every step (on two cores that is faster than one process of two threads, and holds up
better when something else wants the cores). The learning rate falls along a cosine over `--minutes` of training time.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from datetime import timedelta
from pathlib import Path

import cv2
import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from tqdm import tqdm

from training.batches import Batch, Batches
from training.decoder import Decoder
from training.encoder import Encoder
from training.losses import answer_loss
from training.prompts import correct


class Segmenter(nn.Module):
    """Encoder and decoder together."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()


def mask_for_feedback(logits: Tensor, batch: int) -> Tensor:
    """Logits (N, 128, 128) of an answer to the (B, K, 64, 64) probabilities the decoder takes as the earlier mask."""
    pooled = nn.functional.avg_pool2d(logits[:, None].clamp(-8, 8), 2)
    return torch.sigmoid(pooled).reshape(batch, -1, 64, 64)


def rounds(model: Segmenter, batch: Batch, rng: np.random.Generator, count: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss over a first answer and `count` - 1 corrected ones; and IoUs to report."""
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
        logits, scores = model.decoder(maps, torch.from_numpy(points), torch.from_numpy(labels), mask, has_mask)
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


def share_gradients(parameters: list[nn.Parameter], world: int) -> None:
    """Average the gradients over the processes."""
    flat = torch.cat([p.grad.reshape(-1) if p.grad is not None else torch.zeros(p.numel()) for p in parameters])
    dist.all_reduce(flat)
    flat /= world
    start = 0
    for parameter in parameters:
        parameter.grad = flat[start : start + parameter.numel()].reshape(parameter.shape).clone()
        start += parameter.numel()


def learning_rate(spent: float, total: float, step: int, peak: float) -> float:
    """Warm up over 150 steps, then a cosine over the training time."""
    return peak * min(1.0, (step + 1) / 150) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(spent / total, 1.0))))


def save(path: Path, state: dict[str, object]) -> None:
    """Write a checkpoint whole or not at all."""
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)


def work(rank: int, world: int, arguments: argparse.Namespace) -> None:
    """The training loop of one process."""
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(arguments.port))
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=timedelta(hours=12))
    torch.manual_seed(arguments.seed)
    model = Segmenter().to(memory_format=torch.channels_last)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.01)
    average = {name: value.clone() for name, value in model.state_dict().items()}
    step, spent = 0, 0.0
    last = arguments.run / "last.pt"
    start = last if last.exists() else arguments.start
    if start:
        kept = torch.load(start, weights_only=True)
        model.load_state_dict(kept["model"])
        average = kept["average"]
        if start == last:
            optimizer.load_state_dict(kept["optimizer"])
            step, spent = kept["step"], kept["spent"]
    batches = Batches(arguments.shards, arguments.images, arguments.prompts)
    total = arguments.minutes * 60
    smooth: dict[str, float] = {}
    bar = tqdm(total=round(total), initial=round(spent), unit="s", disable=rank > 0, mininterval=10)
    while True:
        begun = time.monotonic()
        over = torch.tensor(float(spent >= total))
        dist.broadcast(over, 0)
        if over.item():
            break
        rng = np.random.default_rng([arguments.seed, rank, step])
        rate = learning_rate(spent, total, step, arguments.rate)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss, report = rounds(model, batches.draw(rng), rng, arguments.rounds)
        torch.autograd.backward(loss)
        share_gradients(parameters, world)
        norm = float(nn.utils.clip_grad_norm_(parameters, 1.0))
        if math.isfinite(norm):
            optimizer.step()
        step += 1
        decay = min(0.998, step / (step + 20))
        with torch.no_grad():
            for name, value in model.state_dict().items():
                average[name].lerp_(value, 1 - decay)
        for name, values in {**report, "loss": loss.detach()[None], "norm": torch.tensor([norm])}.items():
            if values.numel():
                mean = float(values.mean())
                smooth[name] = mean if name not in smooth else 0.98 * smooth[name] + 0.02 * mean
        spent += min(time.monotonic() - begun, 30.0)  # a pause is not training
        if rank == 0:
            bar.update(round(spent) - bar.n)
            if step % 25 == 0:
                line = " ".join(f"{name} {value:.3f}" for name, value in smooth.items())
                bar.write(f"{step} {spent:.0f}s lr {rate:.1e} {line}")
            if step % 100 == 0:
                batches.refresh()
                state = {"model": model.state_dict(), "average": average, "optimizer": optimizer.state_dict()}
                save(last, {**state, "step": step, "spent": spent})
        elif step % 100 == 0:
            batches.refresh()
    if rank == 0:
        state = {"model": model.state_dict(), "average": average, "optimizer": optimizer.state_dict()}
        save(last, {**state, "step": step, "spent": spent})
    dist.destroy_process_group()


def main() -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=Path, required=True, help="folder written by training.shards")
    parser.add_argument("--run", type=Path, required=True, help="folder for checkpoints")
    parser.add_argument("--minutes", type=float, required=True, help="training time in all, resumed runs counted in")
    parser.add_argument("--start", type=Path, help="checkpoint whose weights to begin from")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--images", type=int, default=2, help="per process and step")
    parser.add_argument("--prompts", type=int, default=6, help="per image")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--port", type=int, default=29517)
    arguments = parser.parse_args()
    arguments.run.mkdir(parents=True, exist_ok=True)
    context = mp.get_context("spawn")
    others = [
        context.Process(target=work, args=(r, arguments.processes, arguments)) for r in range(1, arguments.processes)
    ]
    for other in others:
        other.start()
    work(0, arguments.processes, arguments)
    for other in others:
        other.join()


if __name__ == "__main__":
    main()
