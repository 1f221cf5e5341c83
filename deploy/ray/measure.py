"""Comparison of throughput: a loop, `mobile-sam batch` and workers on Ray against the same service, in turns.

python -m deploy.ray.measure
"""

from __future__ import annotations

import io
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.figures import ratios, spread, table
from benchmarks.photo import unseen
from benchmarks.service import ROOT, running
from deploy.ray.batch import run
from mobile_sam_client import Client

ROUNDS = 3
IMAGES = 64
GRID = 4
WORKERS = 2
IMAGES_PER_PART = 4
LOOP, COMMAND, RAY, RAY_RUNNING = "a loop with the client", "mobile-sam batch", "Ray", "Ray, once its workers run"


def write_pictures(folder: Path, numbers: Iterator[int]) -> None:
    """Write JPEG files of 640 x 480 with a few blobs of colour, which the service has not seen."""
    source = np.random.default_rng(0)
    for number in range(IMAGES):
        coarse, file = Image.fromarray(source.integers(0, 255, (5, 6, 3), np.uint8)), io.BytesIO()
        coarse.resize((640, 480), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
        (folder / f"{number:03}.jpg").write_bytes(unseen(file.getvalue(), next(numbers)))


def by_loop(images: Path, _: Path, url: str) -> None:
    """Segment the images one after the other."""
    with Client(url) as client:
        for file in sorted(images.iterdir()):
            client.everything(file, points_per_side=GRID)


def by_command(images: Path, out: Path, url: str) -> None:
    """Run `mobile-sam batch` with its default of four concurrent requests."""
    program = [sys.executable, "-m", "mobile_sam_client", "batch", str(images), "--out", str(out), "--url", url]
    subprocess.run([*program, "--no-overlays", "--points-per-side", str(GRID)], check=True, stdout=subprocess.DEVNULL)


def by_ray(images: Path, out: Path, url: str) -> None:
    """Run workers on Ray, which keeps running between the rounds."""
    run(str(images), out=str(out), url=url, workers=WORKERS, part_size=IMAGES_PER_PART, points_per_side=GRID)


def main() -> None:
    """Measure and print a table."""
    numbers = itertools.count(time.time_ns())
    rates: dict[str, list[float]] = {name: [] for name in (LOOP, COMMAND, RAY, RAY_RUNNING)}
    with tempfile.TemporaryDirectory() as temporary, running(ROOT / "model_repository") as service:
        for turn in range(ROUNDS + 1):
            for name, arm in ((LOOP, by_loop), (COMMAND, by_command), (RAY, by_ray)):
                folder = Path(temporary) / f"{turn} {name}"
                images, out = folder / "images", folder / "out"
                images.mkdir(parents=True)
                write_pictures(images, numbers)
                started = time.perf_counter()
                arm(images, out, service.url)
                rates[name].append(IMAGES / (time.perf_counter() - started))
                if arm is by_ray:  # from when each worker has written a part
                    written = sorted(part.stat().st_mtime for part in (out / "parts").glob("*.parquet"))[WORKERS - 1 :]
                    rates[RAY_RUNNING].append(IMAGES_PER_PART * (len(written) - 1) / (written[-1] - written[0]))
    rows = [(name, str(spread(found[1:])), str(ratios(found[1:], rates[LOOP][1:]))) for name, found in rates.items()]
    print(table(("", "images/s (quartiles)", "of the loop's"), rows))  # without the first round, a warm-up


if __name__ == "__main__":
    main()
