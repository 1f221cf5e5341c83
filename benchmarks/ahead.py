"""Clicks beside a full queue of images, and the speed of the queue.

    python -m benchmarks.ahead

One person clicks on a known image and on new images, alone and beside a queue, which runs at full speed when the clicks
begin. The queue and a plain loop of `/embed` encode new images. All take turns.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import requests
from tqdm import tqdm

from benchmarks.photo import CLICK, new_photo, photo
from benchmarks.report import AHEAD, machine, write_blocks
from benchmarks.servers import click_request, image_fields
from benchmarks.service import OFFICIAL, running
from benchmarks.stats import percentile, ratios, seconds, table
from harness import Server
from harness.load import closed_loop
from harness.repository import prepare
from harness.server import cpu_seconds
from mobile_sam_client import Client
from utils.inference.shares import ACTIVE_S

ROUNDS, CLICKS, FIRST_CLICKS, IMAGES, FULL = 3, 40, 3, 60, 100
"""Rounds; in each, clicks of a kind alone and beside a queue, clicks after a pause, images of queue and loop, images of
a full queue."""
PAUSE_S = 0.4
"""Time from a person's mask to the next click."""
KNOWN, NEW = "known image", "new image"
HEADER = ("click on a", "alone, p50 ms", "p95", "beside a full queue, p50 ms", "p95", "ratio of p95", "images/min")


@dataclass
class Clicks:
    """Latencies of all rounds in seconds, and what the queue did beside them."""

    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    encoded: int = 0
    seconds: float = 0.0

    def row(self, kind: str) -> list[object]:
        """Return a row of the table."""
        times = [1e3 * percentile(each, percent) for each in (self.alone, self.beside) for percent in (50, 95)]
        return [kind, *times, times[3] / times[1], 60 * self.encoded / self.seconds]


def click(server: Server, kind: str, count: int) -> list[float]:
    """Return the latencies of a person's clicks."""
    images: list[bytes | str] = [new_photo() for _ in range(count)]
    if kind == KNOWN:
        images = [server.post("/embed", **image_fields(images[0])).json()["image_id"]] * count
    found = []
    for image in images:
        time.sleep(PAUSE_S)
        (reply,) = closed_loop(server.port, [click_request(image, CLICK, "rle")]).all_ok()
        found.append(reply.seconds)
    return found


@contextlib.contextmanager
def full_queue(server: Server, images: int) -> Iterator[list[str]]:
    """Queue images, wait until they are encoded at full speed, and yield the URLs of their jobs; then cancel them."""
    jobs = []
    for _ in range(0, images, 20):
        files = [image_fields(new_photo())["input_image"] for _ in range(20)]
        jobs.append(f"{server.url}/embed/{server.post('/embed', images=files).json()['job']}")
    time.sleep(ACTIVE_S + 1)
    yield jobs
    for job in jobs:
        requests.delete(job, timeout=60)


def encoded(jobs: list[str]) -> int:
    """Return the number of images of jobs that are encoded."""
    return sum(requests.get(job, timeout=60).json()["done"] for job in jobs)


def measure(server: Server, rounds: int, clicks: int = CLICKS, images: int = IMAGES, full: int = FULL) -> str:
    """Return the figures as text."""
    found = {KNOWN: Clicks(), NEW: Clicks()}
    first: list[float] = []
    speeds: dict[str, list[float]] = {"loop": [], "queue": []}
    spends: dict[str, list[float]] = {"loop": [], "queue": []}
    with Client(server.url) as client:
        works: dict[str, Callable[[list[bytes]], object]] = {
            "loop": lambda files: [client.embed(file) for file in files],
            "queue": lambda files: list(client.embed_in_background(files)),
        }
        client.embed(photo())  # warm-up
        for _ in tqdm(range(rounds), desc="ahead", unit="round"):
            for kind, figures in found.items():
                figures.alone += click(server, kind, clicks)
                with full_queue(server, full) as jobs:
                    before, began = encoded(jobs), time.monotonic()
                    figures.beside += click(server, kind, clicks)
                    figures.seconds += time.monotonic() - began
                    figures.encoded += encoded(jobs) - before
            for _ in range(FIRST_CLICKS):
                with full_queue(server, full):
                    first += click(server, NEW, 1)
            for name, work in works.items():
                time.sleep(ACTIVE_S)
                files, spent = [new_photo() for _ in range(images)], cpu_seconds(server.family())
                speeds[name].append(60 * images / seconds(partial(work, files)))
                spends[name].append(1e3 * (cpu_seconds(server.family()) - spent) / images)
    loop, queue = (sum(speeds[name]) / rounds for name in works)
    cpu = " and ".join(f"{sum(spends[name]) / rounds:.0f} ms" for name in works)
    ratio = ratios(speeds["queue"], speeds["loop"])
    speed = f"Images per minute: a plain loop {loop:.0f}, the queue {queue:.0f}; ratio {ratio}."
    speed += f" Processor time of an image: {cpu}."
    alone, beside = (1e3 * percentile(times, 50) for times in (found[NEW].alone, first))
    after = f"After {ACTIVE_S:g} s without clicks, the first on a new image: p50 {beside:.0f} ms, alone {alone:.0f} ms."
    return f"{table(HEADER, [figures.row(kind) for kind, figures in found.items()])}\n\n{after}\n\n{speed}"


def main() -> None:
    """Measure, print the figures and write them into the page."""
    with running(prepare(OFFICIAL)) as server:
        figures = measure(server, ROUNDS)
    text = f"With the official weights. {machine(versions=False)} {ROUNDS} rounds.\n\n{figures}"
    write_blocks({AHEAD: text})
    print(text)


if __name__ == "__main__":
    main()
