"""Services that share a folder of embeddings: they encode, read and evict at the same time, and
some are killed.
"""

import fcntl
import hashlib
import itertools
import multiprocessing
import random
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from orchestrator.cache import HEADER, CachedImage, EmbeddingCache, Layout
from tests.unit.orchestrator.conftest import Entries

SHAPES = {"image_embeddings": (1, 4, 4, 256)}
FILE_BYTES = 1000
ENTRY_BYTES = HEADER.size + Layout("", SHAPES).nbytes + FILE_BYTES
WEIGHTS = "ab"
"""First digits of the weights of services, by the parity of their numbers."""
IMAGES, CLICKS = 12, 300
ROOM = 5 * ENTRY_BYTES
"""Less than half of the images fit."""
ENTRIES = Entries()


def image_of(number: int) -> tuple[str, bytes]:
    """Return the id and the file of an image."""
    file = random.Random(number).randbytes(FILE_BYTES)
    return hashlib.sha256(file).hexdigest(), file


def encode(number: int, layout: Layout) -> CachedImage:
    """Return the entry of an image, whose embedding is another one by other weights."""
    seed = number + IMAGES * int(layout.fingerprint[0], 16)
    return replace(
        ENTRIES.make(seed, layout=layout), size_hw=(480, 640 + number), file=image_of(number)[1]
    )


def click(folder: Path, weights: str, seed: int, clicks: int | None, done: Connection) -> None:
    """Click on images as a service's process does, and send what happened after each click.
    None: without end.
    """
    layout, draw = Layout(weights * 64, SHAPES), random.Random(seed)
    warnings: list[str] = []
    cache = EmbeddingCache(folder, layout, ROOM, warnings.append)
    for _ in itertools.count() if clicks is None else range(clicks):
        number = draw.randrange(IMAGES)
        image_id, file = image_of(number)
        expected, source = encode(number, layout), "found"
        entry = cache.get(image_id)
        if entry is None:
            with cache.encode_lock(image_id):
                entry = cache.get(image_id)
                if entry is None:
                    entry, source = expected, "encoded"
                    cache.put(image_id, entry, caller=f"caller {draw.randrange(3)}")
        kept_file = cache.image_file(image_id)
        right = ENTRIES.same(entry, expected) and kept_file in (None, file)
        done.send(source if right else "wrong")
    done.send(f"warnings: {warnings}" if warnings else "ended")


@contextmanager
def room_lock(folder: Path) -> Iterator[None]:
    """Keep all processes from writing, as each of them does with the others."""
    with (folder / "locks" / "room").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.slow
def test_services_with_one_folder_find_right_embeddings_within_its_bound_through_kills(
    tmp_path: Path,
):
    folder, context, draw = (
        tmp_path / "embeddings",
        multiprocessing.get_context("spawn"),
        random.Random(3),
    )
    running = {}
    events: Counter[str] = Counter()

    def start(seed: int, clicks: int | None = CLICKS) -> None:
        receiving, sending = context.Pipe(duplex=False)
        arguments = folder, WEIGHTS[seed % 2], seed, clicks, sending
        process = context.Process(target=click, args=arguments, daemon=True)
        process.start()
        sending.close()  # so that a killed process ends its pipe
        running[seed] = process, receiving

    to_kill = {0: draw.randrange(20, 200), 1: draw.randrange(20, 200)}
    for seed in to_kill:
        start(seed, None)
    start(2)
    clicks: Counter[int] = Counter()
    while running:
        for seed, (process, receiving) in [*running.items()]:
            try:
                event = receiving.recv()
            except EOFError:
                process.join()
                assert process.exitcode == (-signal.SIGKILL if seed in to_kill else 0)
                del running[seed]
                if seed in to_kill:
                    start(seed + 10)
                continue
            events[event] += 1
            clicks[seed] += 1
            if clicks[seed] == to_kill.get(seed):
                process.kill()
        with room_lock(folder):
            sizes = [path.stat().st_size for path in folder.iterdir() if path.is_file()]
        assert sum(sizes) <= ROOM
    assert set(events) == {"found", "encoded", "ended"}
    assert events["ended"] == 3
    assert min(events["found"], events["encoded"]) > IMAGES
    assert set(clicks) == {0, 1, 2, 10, 11}
