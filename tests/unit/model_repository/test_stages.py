"""How long the stages of requests take."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import mobile_sam_stages
import pytest
from mobile_sam_call import NotWanted
from mobile_sam_stages import DECODE, DECODER, MASK, STAGES, Stages


class Timers:
    """In place of `threading.Timer`: what was asked for, until the time comes."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, Callable[[], None]]] = []
        self.daemon = False

    def __call__(self, seconds: float, work: Callable[[], None]) -> Timers:
        self.asked.append((seconds, work))
        return self

    def start(self) -> None:
        assert self.daemon  # else the process would not end before the time comes

    def come(self) -> None:
        asked, self.asked = self.asked, []
        for _, work in asked:
            work()


@pytest.fixture
def timers(monkeypatch) -> Timers:
    made = Timers()
    monkeypatch.setattr(mobile_sam_stages, "Timer", made)
    return made


@pytest.fixture
def told() -> list[tuple[str, int, float]]:
    return []


@pytest.fixture
def stages(told, timers, monkeypatch) -> Stages:
    """Of a clock that goes on by a second with every look at it."""
    readings = itertools.count()
    monkeypatch.setattr(mobile_sam_stages, "perf_counter", lambda: float(next(readings)))
    return Stages(lambda *stage: told.append(stage))


def take(stages: Stages, *names: str) -> None:
    for name in names:
        with stages(name):
            pass


def test_a_stage_of_several_parts_is_one_with_all_their_seconds(stages, told, timers):
    take(stages, DECODER, MASK, MASK)
    timers.come()
    assert told == [(DECODER, 1, 1.0), (MASK, 1, 2.0)]


def test_requests_are_told_together_when_the_time_has_come_and_once(stages, told, timers):
    for names in ([DECODE, MASK], [MASK]):
        stages.begin()
        take(stages, *names)
    assert told == []
    assert [seconds for seconds, _ in timers.asked] == [mobile_sam_stages.TOLD_AFTER]
    timers.come()
    assert told == [(DECODE, 1, 1.0), (MASK, 2, 2.0)]
    told.clear()
    stages.begin()
    take(stages, MASK)
    timers.come()
    assert told == [(MASK, 1, 1.0)]


def test_a_long_request_is_told_of_while_it_is_worked_on_and_counted_once(stages, told, timers):
    for _ in range(2):
        take(stages, MASK)
        timers.come()
    assert told == [(MASK, 1, 1.0), (MASK, 0, 1.0)]


def test_a_request_that_does_not_count_leaves_nothing_to_the_next(stages, told, timers):
    stages.begin(counts=False)
    take(stages, DECODE)
    assert timers.asked == []
    stages.begin()
    take(stages, MASK)
    timers.come()
    assert told == [(MASK, 1, 1.0)]


def test_a_stage_that_fails_took_its_time(stages, told, timers):
    with pytest.raises(ZeroDivisionError), stages(DECODE):
        raise ZeroDivisionError
    timers.come()
    assert told == [(DECODE, 1, 1.0)]


def test_no_stage_begins_once_the_answer_is_no_longer_wanted(stages, told, timers):
    wanted = [None, None, NotWanted("its time is over")]

    def check() -> None:
        if error := wanted.pop(0):
            raise error

    stages.begin(check)
    take(stages, DECODE, MASK)
    with pytest.raises(NotWanted), stages(MASK):
        pytest.fail("began")
    timers.come()
    assert told == [(DECODE, 1, 1.0), (MASK, 1, 1.0)]


def test_threads_of_a_request_lose_nothing_of_each_other(told, timers):
    stages = Stages(lambda *stage: told.append(stage))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: take(stages, *STAGES), range(1000)))
    timers.come()
    assert {stage: requests for stage, requests, _ in told} == dict.fromkeys(STAGES, 1)
