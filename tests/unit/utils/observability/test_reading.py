"""Reads that concurrent callers share."""

import asyncio

import pytest

from tests.unit.utils.edge.fakes import Clock
from utils.observability.reading import MAX_AGE_S, Reading


class Source:
    """A costly source, which counts its reads."""

    def __init__(self) -> None:
        self.reads = 0
        self.error: Exception | None = None

    async def read(self) -> int:
        self.reads += 1
        await asyncio.sleep(0)
        if self.error:
            raise self.error
        return self.reads


async def test_concurrent_callers_share_one_read_and_later_ones_its_result_for_a_second():
    source, clock = Source(), Clock()
    reading = Reading(source.read, clock)
    assert set(await asyncio.gather(*(reading() for _ in range(64)))) == {1}
    clock.now += MAX_AGE_S - 0.01
    assert await reading() == 1
    assert await reading(max_age_s=0.2) == 2
    clock.now += MAX_AGE_S
    assert await reading() == 3


async def test_failure_reaches_all_who_wait_and_is_not_kept():
    source = Source()
    reading, source.error = Reading(source.read, Clock()), OSError("away")
    results = await asyncio.gather(*(reading() for _ in range(3)), return_exceptions=True)
    assert [str(result) for result in results] == ["away"] * 3
    source.error = None
    assert (await reading(), source.reads) == (2, 2)


async def test_caller_who_leaves_does_not_end_the_read_of_others():
    source = Source()
    reading = Reading(source.read, Clock())
    leaving, staying = asyncio.create_task(reading()), asyncio.create_task(reading())
    await asyncio.sleep(0)
    leaving.cancel()
    assert await staying == 1
    with pytest.raises(asyncio.CancelledError):
        await leaving
