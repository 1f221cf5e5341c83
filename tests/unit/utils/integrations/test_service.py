"""Masks in the forms of tools: the budget of work, and its turns."""

import asyncio
import itertools
import threading
from types import SimpleNamespace
from unittest.mock import Mock

import orjson
import pytest

from tests.fake_segmenter import FakeSegmenter
from utils.errors import InvalidRequest, Overloaded, Stopping
from utils.inference.request import ImageSource
from utils.inference.shares import RecentCallers
from utils.integrations.service import MAX_WAITING, PAUSE_FACTOR, MaskService
from utils.settings import Settings

LARGE = {"box": [0, 0, 5000, 5000], "rle": {"size": [5000, 5000]}}
SMALL = {"box": [0, 0, 5, 5], "rle": {"size": [5, 5]}}


def document(masks, work_s=0.0):
    return {"masks": masks, "work_s": work_s}


def converted(masks, convert, box_ns=10.0, work_s=0.0):
    """Return masks in the form of a tool, as JSON."""
    service = MaskService(FakeSegmenter(), Settings(max_answer_bytes=1000))
    found = asyncio.run(service.converted(document(masks, work_s), convert, box_ns=box_ns))
    return [orjson.loads(orjson.dumps(item)) for item in found]


@pytest.mark.parametrize(
    ("count", "options", "fits"),
    [(100, {}, 79), (60, {"work_s": 12.5}, 48), (30, {"box_ns": 100.0}, 9)],
)
def test_estimated_work_is_refused_with_the_number_that_fits(count, options, fits):
    convert = Mock(return_value=[])
    with pytest.raises(
        InvalidRequest,
        match=rf"at most {fits} masks like these \(25 s of work\).* got {count} masks",
    ):
        converted([LARGE] * count, convert, **options)
    convert.assert_not_called()


def test_work_above_its_estimate_ends(monkeypatch):
    clock, convert = itertools.count(step=10), Mock(return_value=[])
    monkeypatch.setattr("utils.integrations.service.time.thread_time", lambda: next(clock))
    with pytest.raises(InvalidRequest, match="at most 2 masks"):
        converted([SMALL] * 9, convert)
    assert convert.call_count == 3


@pytest.mark.parametrize(
    ("others", "step_s", "pauses"),
    [(True, 1, [PAUSE_FACTOR] * 3), (True, 0.01, []), (False, 1, [0.0] * 3)],
)
def test_costly_conversion_pauses_after_each_mask_while_others_are_active(
    monkeypatch, others, step_s, pauses
):
    clock, active = itertools.count(step=step_s), RecentCallers()
    waited: list[float] = []
    monkeypatch.setattr("utils.integrations.service.time.thread_time", lambda: next(clock))
    left = SimpleNamespace(is_set=lambda: False, set=lambda: None, wait=waited.append)
    monkeypatch.setattr("utils.integrations.service.threading", SimpleNamespace(Event=lambda: left))
    if others:
        active.note("192.0.2.1")
    service = MaskService(FakeSegmenter(), Settings(), active=active)
    asyncio.run(service.converted(document([SMALL] * 3), Mock(return_value=[]), box_ns=10.0))
    assert waited == pauses


def test_answer_above_its_limit_is_refused_before_it_is_complete():
    convert = Mock(return_value=["x" * 300])
    with pytest.raises(InvalidRequest, match=r"at most 3 masks like these \(1000 bytes\)"):
        converted([SMALL] * 9, convert)
    assert convert.call_count == 4


def test_costly_conversions_take_turns_and_end_when_the_caller_leaves():
    service = MaskService(FakeSegmenter(), Settings())
    started, go, calls = threading.Event(), threading.Event(), []

    def convert(mask):
        calls.append(mask["name"])
        started.set()
        assert go.wait(60)
        return []

    async def run():
        def start(name):
            masks = [{**LARGE, "name": name}] * 5
            return asyncio.ensure_future(service.converted(document(masks), convert, box_ns=10.0))

        first, second = start("first"), start("second")
        await asyncio.to_thread(started.wait, 60)
        more = [start("more") for _ in range(MAX_WAITING)]
        with pytest.raises(Overloaded):
            await more[-1]
        for each in more:
            each.cancel()
        assert calls == ["first"]
        first.cancel()
        await asyncio.wait([first])
        go.set()
        assert await second == []

    asyncio.run(run())
    assert sorted(calls) == ["first", *["second"] * 5]


def test_automatic_masks_of_a_tool_end_with_a_service_that_would_not_wait_for_them():
    service = MaskService(FakeSegmenter(), Settings(), time_left_s=lambda: 0.0)
    with pytest.raises(Stopping, match="would not finish this request in time"):
        asyncio.run(service.everything(ImageSource(b"file", None), {"points_per_side": 8}))
