"""When a model counts as failing or hung, by a clock of the tests."""

from collections import Counter
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator import tensors
from utils.triton.versions import DECODER, ENCODER
from utils.triton.watchdog import Timings, examination
from utils.triton.watchdog.examination import START_FACTOR, Examination
from utils.triton.watchdog.probes import Counts, LocalTriton, NotLoadedError
from utils.triton.watchdog.process import HUNG

HANG_TIMEOUT_S = 75.0
TIMINGS = Timings()
LOCAL = LocalTriton(0)
MODELS = {tensors.SEGMENT, tensors.SEGMENT_CACHED, ENCODER, DECODER}


class Triton:
    """A Triton that answers probes or does not; and the threads that ask it."""

    def __init__(self) -> None:
        self.now, self.answers, self.metrics = 1000.0, True, True
        self.error: Exception | None = None
        self.successes: Counter[str] = Counter()
        self.encode_s = 0.0
        self.probes: list[Any] = []
        self.pending: list[Future[object]] = []

    def submit(self, call, *_) -> "Future[object]":
        future: Future[object] = Future()
        if call == LOCAL.counts:
            if self.metrics:
                future.set_result(Counts(Counter(self.successes), self.encode_s))
            else:
                future.set_exception(OSError("refused"))
            return future
        self.probes.append(call)
        if self.error:
            future.set_exception(self.error)
        elif self.answers:
            future.set_result(None)
        else:
            self.pending.append(future)
        return future


@pytest.fixture
def triton(monkeypatch) -> Triton:
    triton = Triton()
    monkeypatch.setattr(examination, "time", SimpleNamespace(monotonic=lambda: triton.now))
    monkeypatch.setattr(examination, "ThreadPoolExecutor", lambda _: triton)
    return triton


@pytest.fixture
def examined(triton) -> Examination:
    """The examination of a Triton that has become ready."""
    examined = Examination(LOCAL, HANG_TIMEOUT_S, TIMINGS)
    pass_time(examined, triton, 5)
    assert examined.all_succeeded()
    return examined


def pass_time(examined: Examination, triton: Triton, seconds: float) -> None:
    for _ in range(int(seconds / TIMINGS.tick_s)):
        triton.now += TIMINGS.tick_s
        examined.update()


def test_a_model_that_answers_callers_while_its_probe_waits_is_not_hung_but_a_silent_one_is(examined, triton):
    triton.answers = False
    for _ in range(int(3 * HANG_TIMEOUT_S)):
        triton.successes.update([tensors.SEGMENT, tensors.SEGMENT_CACHED])
        pass_time(examined, triton, 1)
    assert examined.problem() == ""
    assert examined.restart_reason() is None
    pass_time(examined, triton, TIMINGS.late_after_s + 1)
    assert "has not answered for" in examined.problem()
    assert examined.restart_reason() is None
    pass_time(examined, triton, HANG_TIMEOUT_S)
    assert [found.cause for found in [examined.restart_reason()] if found] == [HUNG]


def test_time_in_which_the_watchdog_itself_was_suspended_does_not_count(examined, triton):
    triton.answers = False
    pass_time(examined, triton, TIMINGS.idle_before_probe_s + 5)  # a probe is on its way
    triton.now += 10 * HANG_TIMEOUT_S
    examined.update()
    assert examined.problem() == ""
    assert examined.restart_reason() is None


def test_only_the_probe_of_new_images_is_spared_and_only_while_all_its_models_answer_callers(examined, triton):
    for model, probed in ((None, {tensors.SEGMENT_CACHED}), (ENCODER, {tensors.SEGMENT_CACHED, tensors.SEGMENT})):
        triton.probes.clear()
        for _ in range(60):
            triton.successes.update(MODELS - {model})
            pass_time(examined, triton, 1)
        assert {probe.args[1] for probe in triton.probes} == probed


def test_errors_in_a_row_restart_triton_but_an_unloaded_model_does_not(examined, triton):
    triton.error = NotLoadedError("mobile_sam is not loaded")
    pass_time(examined, triton, 60)
    assert (examined.problem(), examined.restart_reason()) == ("mobile_sam is not loaded", None)
    triton.error = OSError("broken")
    pass_time(examined, triton, 10)
    assert "errors in a row: mobile_sam: broken" in examined.restart_reason().detail
    triton.error = None
    pass_time(examined, triton, 2)
    assert (examined.problem(), examined.restart_reason()) == ("", None)


def test_slow_start_whose_probes_succeed_before_the_first_metrics_is_not_a_silent_triton(triton):
    triton.error, triton.metrics = OSError("refused"), False
    examined = Examination(LOCAL, HANG_TIMEOUT_S, TIMINGS)
    pass_time(examined, triton, 4 * TIMINGS.metrics_timeout_s)
    triton.error = None
    while not examined.all_succeeded():
        pass_time(examined, triton, TIMINGS.tick_s)
    assert (examined.problem(), examined.restart_reason()) == ("", None)
    triton.answers = False
    pass_time(examined, triton, TIMINGS.metrics_timeout_s + 1)
    assert examined.problem().startswith("Triton has not answered for ")
    assert examined.restart_reason() is not None


def test_slow_model_is_probed_less_often_and_gets_more_time(triton):
    triton.answers = False
    examined = Examination(LOCAL, HANG_TIMEOUT_S, TIMINGS)
    pass_time(examined, triton, 16)  # as ViT-H takes
    for future in triton.pending:
        future.set_result(None)
    pass_time(examined, triton, 1)
    assert examined.all_succeeded()
    triton.probes.clear()
    pass_time(examined, triton, 300)
    assert triton.probes == []
    pass_time(examined, triton, 25)
    assert {probe.args[1] for probe in triton.probes} == {tensors.SEGMENT, tensors.SEGMENT_CACHED}
    pass_time(examined, triton, 2 * TIMINGS.late_after_s)
    assert examined.problem() == ""
    pass_time(examined, triton, TIMINGS.late_after_s + 20)
    assert "has not answered for" in examined.problem()
    assert examined.restart_reason() is None


def test_slow_model_is_not_hung_before_several_times_its_first_run(triton):
    triton.answers = False
    examined = Examination(LOCAL, HANG_TIMEOUT_S, TIMINGS)
    took_s = int(2 * HANG_TIMEOUT_S)
    pass_time(examined, triton, took_s)  # three at once, at the start
    assert examined.restart_reason() is None
    for future in triton.pending:
        future.set_result(None)
    pass_time(examined, triton, 1)
    pass_time(examined, triton, 20 * took_s + 2)  # until the next probe
    pass_time(examined, triton, 7 * took_s)
    assert examined.restart_reason() is None
    pass_time(examined, triton, 2 * took_s)
    assert [found.cause for found in [examined.restart_reason()] if found] == [HUNG]


def test_hung_start_is_found(triton):
    triton.answers = False
    examined = Examination(LOCAL, HANG_TIMEOUT_S, TIMINGS)
    pass_time(examined, triton, START_FACTOR * HANG_TIMEOUT_S + 2)
    assert [found.cause for found in [examined.restart_reason()] if found] == [HUNG]


def test_counts_are_those_of_all_versions_and_gpus(monkeypatch):
    lines = [
        'nv_inference_request_success{model="mobile_sam",version="1"} 7',
        'nv_inference_request_success{model="mobile_sam",version="2"} 1',
        'nv_inference_request_success{gpu_uuid="GPU-1",model="mobile_sam_encoder",version="1"} 3',
        'nv_inference_request_success{gpu_uuid="GPU-2",model="mobile_sam_encoder",version="1"} 2',
        'nv_inference_request_failure{model="mobile_sam",version="1"} 9',
        'nv_inference_compute_infer_duration_us{model="mobile_sam",version="1"} 9000000',
        'nv_inference_compute_infer_duration_us{gpu_uuid="GPU-1",model="mobile_sam_encoder",version="1"} 1500000',
        'nv_inference_compute_infer_duration_us{gpu_uuid="GPU-2",model="mobile_sam_encoder",version="1"} 250000',
    ]
    monkeypatch.setattr(LocalTriton, "_metrics", lambda *_: "\n".join(lines))
    assert LocalTriton(1).counts(1) == Counts(Counter({"mobile_sam": 8, "mobile_sam_encoder": 5}), 1.75)


def encode(triton: Triton, *seconds: float) -> None:
    """Let the encoder run for callers."""
    triton.successes[ENCODER] += len(seconds)
    triton.encode_s += sum(seconds)


def test_time_of_the_encoder_is_that_of_runs_after_the_start(triton):
    triton.answers = False
    examined = Examination(LOCAL, HANG_TIMEOUT_S, TIMINGS)
    encode(triton, 9.0)  # with an engine that is new
    pass_time(examined, triton, 5)
    assert examined.encode_s == pytest.approx(9)
    encode(triton, 4.4, 4.2)  # at once
    pass_time(examined, triton, 5)
    assert examined.encode_s == pytest.approx(4.3)
    for future in triton.pending:
        future.set_result(None)
    pass_time(examined, triton, 2)
    assert examined.all_succeeded()
    assert examined.encode_s == pytest.approx(4.3)
    encode(triton, 1.2, 1.4)
    pass_time(examined, triton, 2)
    assert examined.encode_s == pytest.approx(1.3)


def test_time_of_the_encoder_ignores_a_single_slow_run_but_follows_several(examined, triton):
    for seconds in (1.3, 1.2, 30.0, 1.4):
        encode(triton, seconds)
        pass_time(examined, triton, 2)
    assert examined.encode_s == pytest.approx(1.3)
    for _ in range(5):
        encode(triton, 5.0)
        pass_time(examined, triton, 2)
    assert examined.encode_s == pytest.approx(5)


def test_time_of_the_encoder_survives_a_restart_and_an_unloaded_version(triton):
    encode(triton, 4.4, 4.2, 4.3)
    examined = Examination(LOCAL, HANG_TIMEOUT_S, TIMINGS, encode_s=1.3)
    pass_time(examined, triton, 5)
    assert examined.all_succeeded()
    assert examined.encode_s == 1.3  # not that of the second start
    encode(triton, 1.5)
    pass_time(examined, triton, 2)
    triton.successes[ENCODER], triton.encode_s = 1, 1.5  # the counters of the other version are gone
    pass_time(examined, triton, 2)
    assert examined.encode_s == pytest.approx(1.5)
