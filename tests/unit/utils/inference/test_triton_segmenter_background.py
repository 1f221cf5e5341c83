"""Files that are kept to be encoded later, and work in the background, with a fake client."""

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from orchestrator import tensors
from tests.unit.utils.inference.test_triton_segmenter import (
    KNOWN,
    NEW,
    UNKNOWN,
    Client,
    segmenter_of,
)
from utils.errors import ImageNotCached
from utils.inference.triton_segmenter import TritonSegmenter


def test_file_is_kept_without_encoding_and_encoded_by_its_id():
    client = Client()
    segmenter = segmenter_of(client)
    asyncio.run(segmenter.embed(NEW, background=True))
    asyncio.run(segmenter.embed(KNOWN, background=True))
    assert client.models == [tensors.SEGMENT] * 2
    assert [received.call.options for received in client.received] == [
        {"encode": False},
        {"encode": True},
    ]
    assert client.read == [{"input_image": b"file"}, {}]


def test_image_that_was_evicted_is_unknown():
    with pytest.raises(ImageNotCached):
        asyncio.run(
            segmenter_of(Client(outcomes={tensors.SEGMENT: UNKNOWN})).embed(KNOWN, background=True)
        )


@pytest.mark.parametrize("background", [False, True])
def test_callers_wait_for_answers_but_not_for_kept_files_and_the_queue(background):
    waiting = []

    @contextlib.contextmanager
    def one_more() -> Iterator[None]:
        waiting.append("begins")
        yield
        waiting.append("ends")

    segmenter = TritonSegmenter(
        Client().infer,
        lambda: 60,
        {tensors.SEGMENT: 1, tensors.SEGMENT_CACHED: 1},
        waiting=one_more,
    )
    asyncio.run(segmenter.embed(NEW, background=background))
    assert waiting == ([] if background else ["begins", "ends"])
    assert any(turns._active.names() for turns in segmenter._turns.values()) != background
