"""Masks in the forms of tools: the budget of work, and its turns."""

import asyncio
import itertools
import threading
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from orchestrator.problems import ANSWER_TOO_LARGE, rejected
from tests.fake_segmenter import FakeSegmenter
from utils.api.errors import InvalidRequest, Overloaded
from utils.edge.admission import ActiveCallers
from utils.integrations.service import MAX_WAITING, PAUSE_FACTOR, Service
from utils.settings import Settings

LARGE = {"box": [0, 0, 5000, 5000], "rle": {"size": [5000, 5000]}}
SMALL = {"box": [0, 0, 5, 5], "rle": {"size": [5, 5]}}


def converted(masks, convert, **options):
    """Return masks in the form of a tool, as JSON."""
    service = Service(FakeSegmenter, Settings(max_answer_bytes=1000))
    found = asyncio.run(service.converted(masks, convert, **{"box_ns": 10.0, **options}))
    return [orjson.loads(orjson.dumps(item)) for item in found]


class Recorded:
    """A conversion that records its masks, and returns the same items for each."""

    def __init__(self, *items: Any) -> None:
        self.calls: list[Any] = []
        self._items = items

    def __call__(self, mask: Any) -> Any:
        self.calls.append(mask)
        return self._items


def test_masks_are_converted_in_their_order_and_can_be_none_or_several():
    assert converted([{**SMALL, "n": n} for n in range(3)], lambda mask: [mask["n"]] * mask["n"]) == [1, 2, 2]


@pytest.mark.parametrize(
    ("count", "options", "fits"),
    [(100, {}, 79), (60, {"work_s": 12.5}, 48), (30, {"box_ns": 100.0}, 9)],
    ids=["many", "model's part", "costly"],
)
def test_estimated_work_is_refused_with_the_number_that_fits(count, options, fits):
    convert = Recorded()
    with pytest.raises(InvalidRequest, match=rf"at most {fits} masks like these \(25 s of work\).* got {count} masks"):
        converted([LARGE] * count, convert, **options)
    assert convert.calls == []


def test_work_above_its_estimate_ends(monkeypatch):
    clock, convert = itertools.count(step=10), Recorded()
    monkeypatch.setattr("utils.integrations.service.time.thread_time", lambda: next(clock))
    with pytest.raises(InvalidRequest, match="at most 2 masks"):
        converted([SMALL] * 9, convert)
    assert len(convert.calls) == 3


@pytest.mark.parametrize(
    ("others", "step_s", "pauses"),
    [(True, 1, [PAUSE_FACTOR] * 3), (True, 0.01, []), (False, 1, [0.0] * 3)],
    ids=["costly", "light", "alone"],
)
def test_costly_conversion_pauses_after_each_mask_while_others_are_active(monkeypatch, others, step_s, pauses):
    clock, active = itertools.count(step=step_s), ActiveCallers()
    waited: list[float] = []
    monkeypatch.setattr("utils.integrations.service.time.thread_time", lambda: next(clock))
    left = SimpleNamespace(is_set=lambda: False, set=lambda: None, wait=waited.append)
    monkeypatch.setattr("utils.integrations.service.threading", SimpleNamespace(Event=lambda: left))
    if others:
        active.note("192.0.2.1")
    service = Service(FakeSegmenter, Settings(), active)
    asyncio.run(service.converted([SMALL] * 3, Recorded(), box_ns=10.0))
    assert waited == pauses


def test_answer_above_its_limit_is_refused_before_it_is_complete():
    convert = Recorded("x" * 300)
    with pytest.raises(InvalidRequest, match=r"at most 3 masks like these \(1000 bytes\)"):
        converted([SMALL] * 9, convert)
    assert len(convert.calls) == 4


def test_polygons_with_too_many_rings_are_an_error_of_the_request():
    def convert(_):
        raise rejected(ANSWER_TOO_LARGE, "mask_format", "at most 5 outlines", "more")

    with pytest.raises(InvalidRequest, match="mask_format: expected at most 5 outlines"):
        converted([SMALL], convert)


def test_costly_conversions_take_turns_and_end_when_the_caller_leaves():
    service = Service(FakeSegmenter, Settings())
    started, go, calls = threading.Event(), threading.Event(), []

    def convert(mask):
        calls.append(mask["name"])
        started.set()
        assert go.wait(10)
        return []

    async def run():
        def start(name):
            return asyncio.ensure_future(service.converted([{**LARGE, "name": name}] * 5, convert, box_ns=10.0))

        first, second = start("first"), start("second")
        await asyncio.to_thread(started.wait, 10)
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
