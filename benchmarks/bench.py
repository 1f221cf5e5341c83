"""Cold requests beside the raw model, and memory: `python -m benchmarks.bench`.

Measured twice: with a model of MobileSAM's size (untrained: time does not depend on the values of its weights)
and with the built-in weights, whose encoder is many times smaller, so that everything around it weighs more.

The arms take turns within each round, so that whatever else the machine does meets all of them; the figure is the
median over the rounds of each round's ratio to the raw model.
"""

from __future__ import annotations

import base64
import io
import shutil
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import requests
from PIL import Image
from tqdm import tqdm

from benchmarks.raw import RawModel
from benchmarks.service import ROOT, Service, running
from mobile_sam_onnx import Preparer

ROUNDS = 25
WARM_UP = 3
REQUESTS_FOR_MEMORY = 200
SIZE = (1800, 1200)


def photo() -> bytes:
    """A JPEG of 2 megapixels with the texture and the size of a photograph's."""
    generator = np.random.default_rng(0)
    picture = np.zeros((SIZE[1], SIZE[0], 3), np.float32)
    for cells in (4, 16, 64, 256):
        coarse = generator.normal(0, 1, (cells * 2 // 3 + 1, cells, 3)).astype(np.float32)
        layers = [Image.fromarray(coarse[..., c]).resize(SIZE, Image.Resampling.BICUBIC) for c in range(3)]
        picture += np.stack([np.asarray(layer) for layer in layers], axis=-1) * 60 / cells**0.5
    file = io.BytesIO()
    Image.fromarray((picture + 128).clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


class Asker:
    """Sends requests over one kept connection."""

    def __init__(self, service: Service) -> None:
        self.session = requests.Session()
        self.url = f"{service.url}/mobile_sam"
        self.image = photo()
        self.count = 0

    def cold(self, picture: str) -> None:
        """One click on an image the service has not seen: the same pixels, other bytes behind the JPEG's end."""
        self.count += 1
        data = self.image + self.count.to_bytes(8, "big")
        body = {
            "input_image": base64.b64encode(data).decode(),
            "pos_coords": [[900, 600]],
            "mask_format": "png",
            "segmented_image": picture,
        }
        self.session.post(self.url, json=body, timeout=60).raise_for_status()


def seconds(work: Callable[[], object]) -> float:
    """How long the work takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def interleaved(arms: dict[str, Callable[[], object]], title: str) -> dict[str, list[float]]:
    """Seconds of each arm in each round after the warm-up; the arms take turns."""
    times: dict[str, list[float]] = {name: [] for name in arms}
    for index in tqdm(range(WARM_UP + ROUNDS), desc=title, unit="round"):
        for name, work in arms.items():
            taken = seconds(work)
            if index >= WARM_UP:
                times[name].append(taken)
    return times


def latency(asker: Asker, raw: RawModel) -> None:
    """Print what a cold request costs over the raw model."""
    arms: dict[str, Callable[[], object]] = {
        "raw encoder + decoder": lambda: raw.decode(raw.encode()),
        "cold request, png mask, no picture": lambda: asker.cold("none"),
        "cold request, png mask, overlay": lambda: asker.cold("overlay"),
        "cold request, png mask, cutout": lambda: asker.cold("cutout"),
    }
    times = interleaved(arms, "latency")
    baseline = times["raw encoder + decoder"]
    print(f"\n{'arm':38} {'p50 ms':>8} {'p95 ms':>8} {'/ raw':>6}   quartiles of the ratio")
    for name, values in times.items():
        ratios = [value / base for value, base in zip(values, baseline, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        p95 = statistics.quantiles(values, n=20)[-1]
        print(
            f"{name:38} {statistics.median(values) * 1e3:8.1f} {p95 * 1e3:8.1f} {middle:6.3f}   {low:.3f} .. {high:.3f}"
        )


def memory(asker: Asker, service: Service) -> None:
    """Print the resident memory after half and all of the requests."""
    half = 0
    for index in tqdm(range(asker.count, REQUESTS_FOR_MEMORY), desc="memory", unit="request"):
        if index >= REQUESTS_FOR_MEMORY // 2 and not half:
            half = service.resident_bytes()
        asker.cold("overlay")
    full = service.resident_bytes()
    print(f"\nresident memory of all processes after {REQUESTS_FOR_MEMORY // 2} requests: {half / 1e9:.2f} GB")
    print(f"resident memory of all processes after {REQUESTS_FOR_MEMORY} requests: {full / 1e9:.2f} GB")


def encoders(raws: dict[str, RawModel]) -> None:
    """Print the raw encoders and decoders beside each other."""
    embeddings = {name: raw.encode() for name, raw in raws.items()}
    arms: dict[str, Callable[[], object]] = {}
    for name, raw in raws.items():
        arms[f"encoder, {name}"] = raw.encode
        arms[f"decoder, {name}"] = partial(raw.decode, embeddings[name])
    times = interleaved(arms, "raw models")
    print()
    for part in ("encoder", "decoder"):
        first, *others = [name for name in arms if name.startswith(part)]
        print(f"{first:38} {statistics.median(times[first]) * 1e3:8.1f} ms")
        for name in others:
            ratio = statistics.median(b / a for a, b in zip(times[first], times[name], strict=True))
            print(f"{name:38} {statistics.median(times[name]) * 1e3:8.1f} ms, {ratio:.3f} of the first")


def prepare(weights: str) -> Path:
    """A model repository with these weights."""
    repository = ROOT / ".cache" / f"benchmark-{weights}" / "model_repository"
    shutil.copytree(
        ROOT / "model_repository",
        repository,
        ignore=shutil.ignore_patterns("*.onnx", "weights.json"),
        dirs_exist_ok=True,
    )
    Preparer(repository, print).prepare(weights)
    return repository


def main() -> None:
    """Measure and print."""
    repositories = {weights: prepare(weights) for weights in ("random", "builtin")}
    encoders({weights: RawModel(repository) for weights, repository in repositories.items()})
    for weights, repository in repositories.items():
        print(f"\n== {weights} weights ==", flush=True)
        with running(repository) as service:
            asker = Asker(service)
            latency(asker, RawModel(repository))
            memory(asker, service)


if __name__ == "__main__":
    main()
