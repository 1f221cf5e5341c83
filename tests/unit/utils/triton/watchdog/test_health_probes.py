"""When a model counts as failing or hung, by a clock of the tests."""

from collections import Counter
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator import tensors
from orchestrator.tensors import DECODER, ENCODER
from utils.triton.watchdog import Timings, health_probes
from utils.triton.watchdog.health_probes import START_FACTOR, HealthProbes
from utils.triton.watchdog.probes import (
    Counts,
    LocalTriton,
    NotLoadedError,
    OutOfMemoryError,
)
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
    monkeypatch.setattr(health_probes, "time", SimpleNamespace(monotonic=lambda: triton.now))
    monkeypatch.setattr(health_probes, "ThreadPoolExecutor", lambda _: triton)
    return triton


@pytest.fixture
def probes(triton) -> HealthProbes:
    """Probes of a Triton that has become ready."""
    probes = HealthProbes(LOCAL, HANG_TIMEOUT_S, TIMINGS)
    pass_time(probes, triton, 5)
    assert probes.all_succeeded()
    return probes


def pass_time(probes: HealthProbes, triton: Triton, seconds: float) -> None:
    for _ in range(int(seconds / TIMINGS.tick_s)):
        triton.now += TIMINGS.tick_s
        probes.update()


def test_a_model_that_answers_callers_while_its_probe_waits_is_not_hung_but_a_silent_one_is(
    probes, triton
):
    triton.answers = False
    for _ in range(int(3 * HANG_TIMEOUT_S)):
        triton.successes.update([tensors.SEGMENT, tensors.SEGMENT_CACHED])
        pass_time(probes, triton, 1)
    assert probes.problem() == ""
    assert probes.restart_reason() is None
    pass_time(probes, triton, TIMINGS.late_after_s + 1)
    assert "has not answered for" in probes.problem()
    assert probes.restart_reason() is None
    pass_time(probes, triton, HANG_TIMEOUT_S)
    assert [found.cause for found in [probes.restart_reason()] if found] == [HUNG]


def test_a_model_counts_as_failing_no_later_than_as_hung(triton):
    hang_timeout_s = TIMINGS.late_after_s / 3
    probes = HealthProbes(LOCAL, hang_timeout_s, TIMINGS)
    pass_time(probes, triton, 5)
    triton.answers = False
    while probes.restart_reason() is None:
        pass_time(probes, triton, TIMINGS.tick_s)
    assert "has not answered for" in probes.problem()


def test_time_in_which_the_watchdog_itself_was_suspended_does_not_count(probes, triton):
    triton.answers = False
    pass_time(probes, triton, TIMINGS.idle_before_probe_s + 5)  # a probe is on its way
    triton.now += 10 * HANG_TIMEOUT_S
    probes.update()
    assert probes.problem() == ""
    assert probes.restart_reason() is None


def test_only_the_probe_of_new_images_is_spared_and_only_while_all_its_models_answer_callers(
    probes, triton
):
    for model, probed in (
        (None, {tensors.SEGMENT_CACHED}),
        (ENCODER, {tensors.SEGMENT_CACHED, tensors.SEGMENT}),
    ):
        triton.probes.clear()
        for _ in range(60):
            triton.successes.update(MODELS - {model})
            pass_time(probes, triton, 1)
        assert {probe.args[1] for probe in triton.probes} == probed


def test_lack_of_memory_of_a_gpu_does_not_restart_triton(probes, triton):
    triton.error = OutOfMemoryError("mobile_sam: Failed to allocate memory")
    pass_time(probes, triton, 60)
    assert (probes.problem(), probes.restart_reason()) == (str(triton.error), None)
    triton.error = None
    pass_time(probes, triton, 2)
    assert probes.problem() == ""


def test_errors_in_a_row_restart_triton_but_an_unloaded_model_does_not(probes, triton):
    triton.error = NotLoadedError("mobile_sam is not loaded")
    pass_time(probes, triton, 60)
    assert (probes.problem(), probes.restart_reason()) == ("mobile_sam is not loaded", None)
    triton.error = OSError("broken")
    pass_time(probes, triton, 10)
    assert "errors in a row: mobile_sam: broken" in probes.restart_reason().detail
    triton.error = None
    pass_time(probes, triton, 2)
    assert (probes.problem(), probes.restart_reason()) == ("", None)


def test_slow_start_whose_probes_succeed_before_the_first_metrics_is_not_a_silent_triton(triton):
    triton.error, triton.metrics = OSError("refused"), False
    probes = HealthProbes(LOCAL, HANG_TIMEOUT_S, TIMINGS)
    pass_time(probes, triton, 4 * TIMINGS.metrics_timeout_s)
    triton.error = None
    while not probes.all_succeeded():
        pass_time(probes, triton, TIMINGS.tick_s)
    assert (probes.problem(), probes.restart_reason()) == ("", None)
    triton.answers = False
    pass_time(probes, triton, TIMINGS.metrics_timeout_s + 1)
    assert probes.problem().startswith("Triton has not answered for ")
    assert probes.restart_reason() is not None


def test_slow_model_is_probed_less_often_and_gets_more_time(triton):
    triton.answers = False
    probes = HealthProbes(LOCAL, HANG_TIMEOUT_S, TIMINGS)
    pass_time(probes, triton, 16)  # as ViT-H takes
    for future in triton.pending:
        future.set_result(None)
    pass_time(probes, triton, 1)
    assert probes.all_succeeded()
    triton.probes.clear()
    pass_time(probes, triton, 300)
    assert triton.probes == []
    pass_time(probes, triton, 25)
    assert {probe.args[1] for probe in triton.probes} == {tensors.SEGMENT, tensors.SEGMENT_CACHED}
    pass_time(probes, triton, 2 * TIMINGS.late_after_s)
    assert probes.problem() == ""
    pass_time(probes, triton, TIMINGS.late_after_s + 20)
    assert "has not answered for" in probes.problem()
    assert probes.restart_reason() is None


def test_slow_model_is_not_hung_before_several_times_its_first_run(triton):
    triton.answers = False
    probes = HealthProbes(LOCAL, HANG_TIMEOUT_S, TIMINGS)
    took_s = int(2 * HANG_TIMEOUT_S)
    pass_time(probes, triton, took_s)  # three at once, at the start
    assert probes.restart_reason() is None
    for future in triton.pending:
        future.set_result(None)
    pass_time(probes, triton, 1)
    pass_time(probes, triton, 20 * took_s + 2)  # until the next probe
    pass_time(probes, triton, 7 * took_s)
    assert probes.restart_reason() is None
    pass_time(probes, triton, 2 * took_s)
    assert [found.cause for found in [probes.restart_reason()] if found] == [HUNG]


def test_hung_start_is_found(triton):
    triton.answers = False
    probes = HealthProbes(LOCAL, HANG_TIMEOUT_S, TIMINGS)
    pass_time(probes, triton, START_FACTOR * HANG_TIMEOUT_S + 2)
    assert [found.cause for found in [probes.restart_reason()] if found] == [HUNG]


def test_counts_are_those_of_all_versions_and_gpus(monkeypatch):
    lines = [
        'nv_inference_request_success{model="mobile_sam",version="1"} 7',
        'nv_inference_request_success{model="mobile_sam",version="2"} 1',
        'nv_inference_request_success{gpu_uuid="GPU-1",model="mobile_sam_encoder",version="1"} 3',
        'nv_inference_request_success{gpu_uuid="GPU-2",model="mobile_sam_encoder",version="1"} 2',
        'nv_inference_request_failure{model="mobile_sam",version="1"} 9',
        'nv_inference_compute_infer_duration_us{model="mobile_sam",version="1"} 9000000',
        (
            'nv_inference_compute_infer_duration_us{gpu_uuid="GPU-1",model="mobile_sam_encoder",version="1"}'
            " 1500000"
        ),
        (
            'nv_inference_compute_infer_duration_us{gpu_uuid="GPU-2",model="mobile_sam_encoder",version="1"}'
            " 250000"
        ),
    ]
    monkeypatch.setattr(LocalTriton, "_metrics", lambda *_: "\n".join(lines))
    assert LocalTriton(1).counts(1) == Counts(
        Counter({"mobile_sam": 8, "mobile_sam_encoder": 5}), 1.75
    )


def encode(triton: Triton, *seconds: float) -> None:
    """Let the encoder run for callers."""
    triton.successes[ENCODER] += len(seconds)
    triton.encode_s += sum(seconds)


def test_time_of_the_encoder_is_that_of_runs_after_the_start(triton):
    triton.answers = False
    probes = HealthProbes(LOCAL, HANG_TIMEOUT_S, TIMINGS)
    encode(triton, 9.0)  # with an engine that is new
    pass_time(probes, triton, 5)
    assert probes.encode_s == pytest.approx(9)
    encode(triton, 4.4, 4.2)  # at once
    pass_time(probes, triton, 5)
    assert probes.encode_s == pytest.approx(4.3)
    for future in triton.pending:
        future.set_result(None)
    pass_time(probes, triton, 2)
    assert probes.all_succeeded()
    assert probes.encode_s == pytest.approx(4.3)
    encode(triton, 1.2, 1.4)
    pass_time(probes, triton, 2)
    assert probes.encode_s == pytest.approx(1.3)


def test_time_of_the_encoder_ignores_a_single_slow_run_but_follows_several(probes, triton):
    for seconds in (1.3, 1.2, 30.0, 1.4):
        encode(triton, seconds)
        pass_time(probes, triton, 2)
    assert probes.encode_s == pytest.approx(1.3)
    for _ in range(5):
        encode(triton, 5.0)
        pass_time(probes, triton, 2)
    assert probes.encode_s == pytest.approx(5)


def test_time_of_the_encoder_survives_a_restart_and_an_unloaded_version(triton):
    encode(triton, 4.4, 4.2, 4.3)
    probes = HealthProbes(LOCAL, HANG_TIMEOUT_S, TIMINGS, encode_s=1.3)
    pass_time(probes, triton, 5)
    assert probes.all_succeeded()
    assert probes.encode_s == 1.3  # not that of the second start
    encode(triton, 1.5)
    pass_time(probes, triton, 2)
    # The counters of the other version are gone.
    triton.successes[ENCODER], triton.encode_s = (
        1,
        1.5,
    )
    pass_time(probes, triton, 2)
    assert probes.encode_s == pytest.approx(1.5)
