"""Comparison of throughput: a loop, `mobile-sam batch` and workers on Ray against the same service, in turns.

python -m deploy.ray.measure
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.figures import ratios, spread, table
from benchmarks.photo import unseen
from benchmarks.service import ROOT, running
from deploy.ray.batch import BatchOptions, run
from mobile_sam_client import Client

ROUNDS = 3
IMAGES = 64
GRID = 4
WORKERS = 2
IMAGES_PER_PART = 4
LOOP, COMMAND, RAY, RAY_RUNNING = "a loop with the client", "mobile-sam batch", "Ray", "Ray, once its workers run"


def pictures() -> list[bytes]:
    """Return JPEG files of 640 x 480 with a few blobs of colour."""
    source = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for number in range(IMAGES):
            coarse = Image.fromarray(source.integers(0, 255, (5, 6, 3), np.uint8))
            file = Path(folder) / f"{number}.jpg"
            coarse.resize((640, 480), Image.Resampling.BICUBIC).save(file, quality=90)
            files.append(file.read_bytes())
    return files


def by_loop(images: Path, _: Path, url: str) -> dict[str, float]:
    """Segment the images one after the other."""
    started = time.perf_counter()
    with Client(url) as client:
        for file in sorted(images.iterdir()):
            client.everything(file, points_per_side=GRID)
    return {LOOP: IMAGES / (time.perf_counter() - started)}


def by_command(images: Path, out: Path, url: str) -> dict[str, float]:
    """Run `mobile-sam batch` with its default of four concurrent requests."""
    started = time.perf_counter()
    program = [sys.executable, "-m", "mobile_sam_client", "batch", str(images), "--out", str(out), "--url", url]
    subprocess.run([*program, "--no-overlays", "--points-per-side", str(GRID)], check=True, stdout=subprocess.DEVNULL)
    return {COMMAND: IMAGES / (time.perf_counter() - started)}


def by_ray(images: Path, out: Path, url: str) -> dict[str, float]:
    """Run workers on a running Ray, with and without the start-up of the workers."""
    started, seen = time.perf_counter(), list[tuple[float, int]]()

    def on_progress(done: int, _: int) -> None:
        if done:
            seen.append((time.perf_counter(), done))

    run(BatchOptions(str(images), str(out), url, WORKERS, 8, IMAGES_PER_PART, {"points_per_side": GRID}), on_progress)
    total_rate = IMAGES / (time.perf_counter() - started)
    # Measured from when each worker has finished a part, which excludes start-up.
    (first, before), (last, after) = seen[WORKERS - 1], seen[-1]
    return {RAY: total_rate, RAY_RUNNING: (after - before) / (last - first)}


ARMS: tuple[Callable[[Path, Path, str], dict[str, float]], ...] = (by_loop, by_command, by_ray)


def main() -> None:
    """Measure and print a table."""
    files, numbers = pictures(), itertools.count(time.time_ns())
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as temporary, running(ROOT / "model_repository") as service:
        for turn in range(ROUNDS + 1):  # the first is to warm up
            for arm in ARMS:
                folder = Path(temporary) / "turn"
                (folder / "images").mkdir(parents=True)
                for number, file in enumerate(files):
                    (folder / "images" / f"{number:03}.jpg").write_bytes(unseen(file, next(numbers)))
                for name, rate in arm(folder / "images", folder / "out", service.url).items():
                    if turn:
                        found.setdefault(name, []).append(rate)
                shutil.rmtree(folder)
    rows = [(name, str(spread(rates)), str(ratios(rates, found[LOOP]))) for name, rates in found.items()]
    print(table(("", "images/s (quartiles)", "of the loop's"), rows))


if __name__ == "__main__":
    main()
