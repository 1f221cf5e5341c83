"""Files that are kept to be encoded later, and work in the background, with a fake client."""

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from tests.unit.utils.triton.test_segmenter import NEW, UNKNOWN, Client, segmenter_of
from utils.observability.context import BACKGROUND
from utils.triton import tensors
from utils.triton.segmenter import TritonSegmenter


def test_file_is_kept_without_encoding_and_only_if_it_is_not_known():
    client = Client(outcomes={tensors.SEGMENT: UNKNOWN})
    asyncio.run(segmenter_of(client).store(NEW))
    assert client.models == [tensors.SEGMENT] * 2
    assert [call.options for call in client.received] == [{"encode": False}] * 2
    assert client.read == [{}, {"input_image": b"file"}]


@pytest.mark.parametrize("background", [False, True])
def test_callers_wait_for_answers_but_not_for_kept_files_and_the_queue(background):
    waiting = []

    @contextlib.contextmanager
    def one_more() -> Iterator[None]:
        waiting.append("begins")
        yield
        waiting.append("ends")

    async def run() -> None:
        BACKGROUND.set(background)
        await segmenter.store(NEW)
        assert not waiting
        await segmenter.embed(NEW)

    segmenter = TritonSegmenter(Client().infer, lambda: 60, {tensors.SEGMENT_CACHED: 1}, waiting=one_more)
    held = segmenter._semaphores[tensors.SEGMENT_CACHED]
    asyncio.run(run())
    assert waiting == ([] if background else ["begins", "ends"])
    assert bool(held._active._last_request) != background
