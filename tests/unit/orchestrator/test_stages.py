"""Times of a request's stages."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest

from orchestrator import stages as stages_module
from orchestrator.call import RequestCancelled
from orchestrator.stages import Stage, Stages


@pytest.fixture
def timers(monkeypatch) -> Mock:
    """Stand-in for `threading.Timer`."""
    monkeypatch.setattr(stages_module, "Timer", made := Mock())
    return made


def fire(timers: Mock) -> None:
    """Run what the pending timers would run."""
    pending = timers.call_args_list
    timers.reset_mock()
    for timer in pending:
        timer.args[1]()


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
    for names in ([Stage.DECODE, Stage.MASK, Stage.MASK], [Stage.MASK]):
        stages.begin()
        run(stages, *names)
    assert reported == []
    assert [timer.args[0] for timer in timers.call_args_list] == [stages_module.REPORT_INTERVAL_S]
    assert timers.return_value.daemon is True  # a pending timer must not keep the process alive
    fire(timers)
    assert reported == [(Stage.DECODE, 1, 1.0), (Stage.MASK, 2, 3.0)]
    run(stages, Stage.MASK)  # the last request goes on
    fire(timers)
    assert reported[2:] == [(Stage.MASK, 0, 1.0)]


def test_uncounted_request_is_not_reported(stages, reported, timers):
    stages.begin(counts=False)
    run(stages, Stage.DECODE)
    assert not timers.called


def test_failed_stage_is_timed_and_a_cancelled_request_starts_none(stages, reported, timers):
    check = Mock(side_effect=[None, RequestCancelled("the deadline has passed")])
    stages.begin(check)
    with pytest.raises(ZeroDivisionError), stages(Stage.MASK):
        raise ZeroDivisionError
    with pytest.raises(RequestCancelled), stages(Stage.MASK):
        pytest.fail("the stage has started")
    fire(timers)
    assert reported == [(Stage.MASK, 1, 1.0)]


def test_stages_of_concurrent_threads_are_all_counted(reported, timers):
    stages = Stages(lambda *stage: reported.append(stage))
    names = [Stage.DECODE, Stage.ENCODE, Stage.MASK]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: run(stages, *names), range(1000)))
    fire(timers)
    assert {stage: requests for stage, requests, _ in reported} == dict.fromkeys(names, 1)
