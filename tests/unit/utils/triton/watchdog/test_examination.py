"""When a model counts as failing or hung, by a clock of the tests."""

from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from utils.triton.run import Run
from utils.triton.versions import DECODER, ENCODER
from utils.triton.watchdog import Timings, examination
from utils.triton.watchdog.examination import Examination
from utils.triton.watchdog.probes import ModelCounters, read_counters
from utils.triton.watchdog.process import HUNG

MODELS = ("mobile_sam", DECODER, ENCODER)
HANG_TIMEOUT_S = 75.0
TIMINGS = Timings()


class Triton:
    """A Triton that answers probes, or works on a long request, or does neither; and the threads that ask it."""

    def __init__(self) -> None:
        self.now, self.answers, self.busy = 1000.0, True, False

    def submit(self, call, *_) -> Future:
        future: Future = Future()
        if call is read_counters:
            future.set_result(ModelCounters({}, dict.fromkeys(MODELS, self.now if self.busy else 0.0)))
        elif self.answers:
            future.set_result(None)
        return future


@pytest.fixture
def triton(monkeypatch) -> Triton:
    triton = Triton()
    monkeypatch.setattr(examination, "time", SimpleNamespace(monotonic=lambda: triton.now))
    monkeypatch.setattr(examination, "ThreadPoolExecutor", lambda _: triton)
    monkeypatch.setattr(examination, "probe_calls", lambda *_, **__: dict.fromkeys(MODELS))
    return triton


@pytest.fixture
def examined(triton) -> Examination:
    return Examination(0, Run("a folder", "a file", "key", "prefix", 0), HANG_TIMEOUT_S, TIMINGS)


def pass_time(examined: Examination, triton: Triton, seconds: float) -> None:
    for _ in range(int(seconds / TIMINGS.tick_s)):
        triton.now += TIMINGS.tick_s
        examined.update()


def test_a_busy_model_is_not_hung_but_a_silent_one_is(examined, triton):
    pass_time(examined, triton, 5)
    assert examined.all_succeeded()
    triton.answers, triton.busy = False, True
    pass_time(examined, triton, 3 * HANG_TIMEOUT_S)
    assert examined.problem() == ""
    assert examined.restart_reason() is None
    triton.busy = False
    pass_time(examined, triton, TIMINGS.late_after_s + 1)
    assert "has not answered for" in examined.problem()
    assert examined.restart_reason() is None
    pass_time(examined, triton, HANG_TIMEOUT_S)
    reason = examined.restart_reason()
    assert reason is not None
    assert reason.cause == HUNG


def test_time_in_which_the_watchdog_itself_was_suspended_does_not_count(examined, triton):
    pass_time(examined, triton, 5)
    triton.answers = False
    pass_time(examined, triton, TIMINGS.idle_before_probe_s + 5)  # a probe is on its way
    triton.now += 10 * HANG_TIMEOUT_S
    examined.update()
    assert examined.problem() == ""
    assert examined.restart_reason() is None
