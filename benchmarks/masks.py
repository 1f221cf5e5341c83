"""Speed of `mobile-sam masks`, compared with encoding and with the requests alone: `python -m benchmarks.masks`

In each round the command makes masks of 10 boxes on each of some new images, from reading the data set to the results.
Loops encode the same pixels in other files, and segment 10 boxes on them, as many at once. All take turns.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image
from tqdm import tqdm

from benchmarks.service import OFFICIAL, running
from benchmarks.stats import ratios, seconds, spread, table
from harness.repository import prepare
from mobile_sam_client import AsyncClient, Prompt
from mobile_sam_client._commands import app, connection

BOXES = 10
SIZE_WH = (640, 480)
CONCURRENCY = 4
COMMAND, ENCODING, REQUESTS = "mobile-sam masks", "POST /embed", "POST /mobile_sam"


def write_images(folder: Path, count: int, seed: int) -> None:
    """Write a COCO data set of generated images with random boxes."""
    random = np.random.default_rng(seed)
    images: list[dict[str, object]] = []
    annotations: list[dict[str, object]] = []
    (folder / "images").mkdir(parents=True)
    for number in range(count):
        coarse = Image.fromarray(random.integers(0, 255, (6, 8, 3), np.uint8))
        coarse.resize(SIZE_WH, Image.Resampling.BICUBIC).save(folder / "images" / f"{number}.jpg")
        images.append({"id": number, "file_name": f"images/{number}.jpg"})
        for _ in range(BOXES):
            bbox = (random.uniform((0, 0, 0.1, 0.1), (0.6, 0.6, 0.4, 0.4)) * (SIZE_WH * 2)).tolist()
            annotations.append({"id": len(annotations), "image_id": number, "category_id": 1, "bbox": bbox})
    document = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "object"}]}
    (folder / "boxes.json").write_text(json.dumps(document))


def make_masks(folder: Path, url: str) -> None:
    """Run the command."""
    options = ["--out", f"{folder}-masks", "--concurrency", str(CONCURRENCY), "--url", url, "--json"]
    app(["masks", str(folder), "--format", "coco", *options], standalone_mode=False)


def ask(folder: Path, url: str, mark: bytes, prompts: Sequence[Prompt] = ()) -> None:
    """Encode the images of a data set, or segment them; bytes after the image make them new to the service."""

    async def work(client: AsyncClient, path: Path) -> None:
        file = path.read_bytes() + mark
        await (client.segment_many(file, prompts) if prompts else client.embed(file))

    async def run() -> None:
        async with AsyncClient(url) as client:
            await connection.run_concurrently(sorted(folder.rglob("*.jpg")), partial(work, client), CONCURRENCY)

    asyncio.run(run())


def measure(weights: str, rounds: int, images: int) -> str:
    """Return a table of images per second, and of the command's ratio to the others."""
    prompts = [Prompt(box=(20 * number, 10, 200 + 20 * number, 300)) for number in range(BOXES)]
    arms: dict[str, Callable[[Path, str], None]]
    arms = {COMMAND: make_masks, ENCODING: partial(ask, mark=b"0"), REQUESTS: partial(ask, mark=b"1", prompts=prompts)}
    speeds: dict[str, list[float]] = {name: [] for name in arms}
    with TemporaryDirectory() as folder, running(prepare(weights)) as server:
        for number in tqdm(range(rounds + 1), unit="round"):
            data = Path(folder) / str(number)
            write_images(data, images, number)
            for name, work in arms.items():
                speed = images / seconds(partial(work, data, server.url))
                speeds[name] += [speed] if number else []  # after a warm-up
    rows = [(name, spread(values), ratios(speeds[COMMAND], values)) for name, values in speeds.items()]
    return table((f"{rounds} x {images} images", "images/s (quartiles)", "the command's ratio to it"), rows)


if __name__ == "__main__":
    print(measure(OFFICIAL, rounds=10, images=100))
