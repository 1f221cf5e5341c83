"""API workers that are killed while they encode, beside callers who add and cancel."""

import asyncio
import multiprocessing
import random
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from harness import wait_until
from tests.fake_segmenter import FakeSegmenter
from tests.unit.utils.background.test_queue_states import ends_of, log_changes
from utils.background import encoder as module
from utils.background.encoder import BackgroundEncoder, WaitingCallers
from utils.background.queue import EncodeQueue
from utils.inference.request import ImageSource

LISTS = 12
ENCODE_S = 0.01


class SlowSegmenter(FakeSegmenter):
    """Segmenter that says when it begins to encode."""

    def __init__(self, began: Connection) -> None:
        super().__init__()
        self._began = began

    async def embed(
        self, image: ImageSource, model_version: int | None = None, *, background: bool = False
    ) -> bytes:
        self._began.send(image.image_id)
        await asyncio.sleep(ENCODE_S)
        return b"{}"


async def loaded() -> list[int]:
    return [1]


def encode(folder: Path, began: Connection) -> None:
    """Run the encoder of one worker until it is killed."""
    segmenter = SlowSegmenter(began)
    module.RETRY_S = module.CHECK_S = 0.01
    queue = EncodeQueue(folder / "queue.sqlite3", 2**30, 0)
    callers = WaitingCallers(folder / "callers")
    encoder = BackgroundEncoder(
        queue, folder, segmenter, lambda: True, None, versions=loaded, callers=callers
    )
    asyncio.run(encoder.run())


@pytest.mark.slow
def test_each_image_ends_exactly_once_through_kills_and_cancellations(tmp_path: Path) -> None:
    draw = random.Random(5)
    queue = EncodeQueue(tmp_path / "queue.sqlite3", 2**30, 0)
    queue.add("", "a", None, [("first", 0)])
    log_changes(tmp_path / "queue.sqlite3")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # imported once for all workers
    began, begins = context.Pipe(duplex=False)
    encoded, cancelled, expected = list[str](), 0, 1
    workers = [
        context.Process(target=encode, args=(tmp_path, begins), daemon=True) for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    for number in range(LISTS):
        job, _ = queue.add(
            "", "ab"[number % 2], None, [(f"{number}-{image}", 0) for image in range(6)]
        )
        expected += 6
        for _ in range(draw.randrange(1, 5)):
            encoded.append(began.recv())
        time.sleep(draw.random() * ENCODE_S)
        if number % 3 == 0:
            answers = [queue.job(job, "", cancel=True) for _ in range(2)]
            assert answers[0] == answers[1]
            cancelled += answers[0]["cancelled"]
        if number % 4 == 3:  # both, sometimes the one that encodes only
            for worker in workers:
                worker.kill()
                worker.join()
                assert worker.exitcode == -signal.SIGKILL
            began, begins = context.Pipe(duplex=False)
            workers = [
                context.Process(target=encode, args=(tmp_path, begins), daemon=True)
                for _ in range(2)
            ]
            for worker in workers:
                worker.start()
    wait_until(lambda: b'{state="queued"} 0' in queue.metrics())
    for worker in workers:
        worker.kill()
        worker.join()
    ends = ends_of(tmp_path / "queue.sqlite3")
    assert len(ends) == expected
    assert [number for number, states in ends.items() if len(states) != 1] == []
    assert sum(states == ["cancelled"] for states in ends.values()) == cancelled > 0
    assert sum(states == ["failed"] for states in ends.values()) == 0
