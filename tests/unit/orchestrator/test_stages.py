"""Timing of the stages of requests."""

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from orchestrator import stages as stages_module
from orchestrator.call import RequestCancelled
from orchestrator.stages import DECODE, MASK, STAGES, Stages


class Timers:
    """Stand-in for `threading.Timer` that a test fires."""

    def __init__(self) -> None:
        self.pending: list[tuple[float, Callable[[], None]]] = []
        self.daemon = False

    def __call__(self, seconds: float, work: Callable[[], None]):
        self.pending.append((seconds, work))
        return self

    def start(self) -> None:
        assert self.daemon  # a pending timer must not keep the process alive

    def fire(self) -> None:
        pending, self.pending = self.pending, []
        for _, work in pending:
            work()


@pytest.fixture
def timers(monkeypatch) -> Timers:
    made = Timers()
    monkeypatch.setattr(stages_module, "Timer", made)
    return made


@pytest.fixture
def reported() -> list[tuple[str, int, float]]:
    return []


@pytest.fixture
def stages(reported, timers, monkeypatch) -> Stages:
    """Stages with a clock that advances by a second with each reading."""
    readings = itertools.count()
    monkeypatch.setattr(stages_module, "perf_counter", lambda: float(next(readings)))
    return Stages(lambda *stage: reported.append(stage))


def run(stages: Stages, *names: str) -> None:
    for name in names:
        with stages(name):
            pass


def test_requests_are_reported_together_and_once_by_their_stages(stages, reported, timers):
    for names in ([DECODE, MASK, MASK], [MASK]):
        stages.begin()
        run(stages, *names)
    assert reported == []
    assert [seconds for seconds, _ in timers.pending] == [stages_module.REPORT_INTERVAL_S]
    timers.fire()
    assert reported == [(DECODE, 1, 1.0), (MASK, 2, 3.0)]
    run(stages, MASK)  # the last request goes on
    timers.fire()
    assert reported[2:] == [(MASK, 0, 1.0)]


def test_uncounted_request_is_not_reported(stages, reported, timers):
    stages.begin(counts=False)
    run(stages, DECODE)
    assert timers.pending == []
    stages.begin()
    run(stages, MASK)
    timers.fire()
    assert reported == [(MASK, 1, 1.0)]


def test_failed_stage_is_timed_and_a_cancelled_request_starts_none(stages, reported, timers):
    checks = [None, None, RequestCancelled("the deadline has passed")]

    def check() -> None:
        if error := checks.pop(0):
            raise error

    stages.begin(check)
    run(stages, DECODE)
    with pytest.raises(ZeroDivisionError), stages(MASK):
        raise ZeroDivisionError
    with pytest.raises(RequestCancelled), stages(MASK):
        pytest.fail("the stage has started")
    timers.fire()
    assert reported == [(DECODE, 1, 1.0), (MASK, 1, 1.0)]


def test_stages_of_concurrent_threads_are_all_counted(reported, timers):
    stages = Stages(lambda *stage: reported.append(stage))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: run(stages, *STAGES), range(1000)))
    timers.fire()
    assert {stage: requests for stage, requests, _ in reported} == dict.fromkeys(STAGES, 1)
