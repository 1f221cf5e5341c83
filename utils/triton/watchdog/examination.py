"""Health of the models of one Triton run, from counters of callers' requests and from probes of idle models."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from utils.triton.run import Run
from utils.triton.versions import DECODER, ENCODER
from utils.triton.watchdog import Timings
from utils.triton.watchdog.engines import EngineError, check_engines
from utils.triton.watchdog.probes import (
    ModelCounters,
    NotLoadedError,
    ProbeError,
    probe_calls,
    read_counters,
    read_engines,
)
from utils.triton.watchdog.process import FAILED, HUNG, RestartReason

MAX_CONSECUTIVE_ERRORS = 3
"""Consecutive errors of one model after which Triton is restarted."""
ENGINES = "engines"
"""Name of the check of the engines, among the names of the models."""


class Examination:
    """Probe results and request counters of one Triton run."""

    def __init__(self, port: int, run: Run, hang_timeout_s: float, timings: Timings) -> None:
        """Initialize without probing; a probed model without progress for `hang_timeout_s` counts as hung."""
        self._updated_at, self._now = time.monotonic(), 0.0
        self._port, self._metrics_port, self._hang_timeout_s = port, run.metrics_port, hang_timeout_s
        self._timings = timings
        self._key_header = run.key_header
        self._calls = probe_calls(self._key_header, models=run.probe_models)
        if run.probe_models:
            self._calls[ENGINES] = self._check_engines
        self._threads = ThreadPoolExecutor(len(self._calls) + 1)
        self._pending: dict[str, tuple[float, Future[object]]] = {}
        self._counters = ModelCounters({}, {})
        self._reading: Future[ModelCounters] | None = None
        self._metrics_at = self._now
        self._succeeded_at = dict.fromkeys(self._calls, -float("inf"))
        self._progressed_at = dict(self._succeeded_at)
        self._errors: Counter[str] = Counter()
        self._last_error: dict[str, str] = {}
        self._not_loaded: set[str] = set()
        self._probed_at: dict[str, float] = {}
        self.broken_engine = ""
        """Result of a check that found an engine broken, and the remedy."""

    def update(self) -> None:
        """Collect finished probes and start those that are due, without blocking."""
        # Bounded, so that a frozen container does not look like a hung model.
        updated_at, self._updated_at = self._updated_at, time.monotonic()
        now = self._now = self._now + min(self._updated_at - updated_at, self._timings.max_clock_step_s)
        self._update_counters(now)
        for model, call in self._calls.items():
            if model in self._pending:
                self._collect(model, now)
            elif self._is_due(model, now):
                self._probed_at[model] = now
                self._pending[model] = (now, self._threads.submit(call, self._port, self._hang_timeout_s + 10))

    def all_succeeded(self) -> bool:
        """Return whether every model has completed an inference, and the engines their check."""
        return self._have_succeeded(self._calls)

    def problem(self) -> str:
        """Return why a model counts as failing, or an empty string if none does."""
        now = self._now
        if self._errors:
            return "; ".join(self._last_error[model] for model in self._errors)
        if now - self._metrics_at > self._timings.metrics_timeout_s / 2:
            return f"Triton has not answered for {now - self._metrics_at:.0f} s"
        for model, seconds in self._stalls(now):
            if seconds > self._timings.late_after_s:
                return f"{model} has not answered for {seconds:.0f} s"
        return ""

    def restart_reason(self) -> RestartReason | None:
        """Return why Triton must be restarted, or None if it need not be."""
        now = self._now
        for model, count in self._errors.items():
            if count >= MAX_CONSECUTIVE_ERRORS and model not in self._not_loaded:  # unloading is deliberate
                return RestartReason(FAILED, f"{count} errors in a row: {self._last_error[model]}")
        if now - self._metrics_at > self._timings.metrics_timeout_s:
            return RestartReason(HUNG, f"no answer from Triton for {now - self._metrics_at:.0f} s")
        for model, seconds in self._stalls(now):
            if seconds > self._hang_timeout_s:
                return RestartReason(HUNG, f"no answer from {model} for {seconds:.0f} s")
        return None

    def close(self) -> None:
        """Stop waiting for probes."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _have_succeeded(self, models: Iterable[str]) -> bool:
        return all(self._succeeded_at[model] > -float("inf") for model in models)

    def _check_engines(self, port: int, timeout_s: float) -> None:
        """Check the engines; the error names them and a remedy."""
        try:
            check_engines(self._key_header, port, timeout_s)
        except EngineError as error:
            engines = read_engines(self._metrics_port, timeout_s)
            raise EngineError(f"{error} ({engines}): set MOBILE_SAM_ENGINE to openvino or onnxruntime") from None

    def _stalls(self, now: float) -> list[tuple[str, float]]:
        """Return each model with a pending probe, and the seconds since its last success or progress."""
        return [
            (model, now - max(probed, self._succeeded_at[model], self._progressed_at[model]))
            for model, (probed, _) in self._pending.items()
        ]

    def _is_due(self, model: str, now: float) -> bool:
        since = now - self._probed_at.get(model, -float("inf"))
        if model == ENGINES and (self._have_succeeded([model]) or not self._have_succeeded([ENCODER, DECODER])):
            return False
        if model in self._errors:
            starting = not self.all_succeeded()
            return since >= (self._timings.startup_retry_interval_s if starting else self._timings.retry_interval_s)
        return now - self._succeeded_at[model] > (
            self._timings.encoder_idle_before_probe_s if model == ENCODER else self._timings.idle_before_probe_s
        )

    def _collect(self, model: str, now: float) -> None:
        _, future = self._pending[model]
        if not future.done():
            return
        del self._pending[model]
        error = future.exception()
        self._not_loaded.discard(model)
        if error is None:
            self._succeeded_at[model] = now
            del self._errors[model]
        elif isinstance(error, (ProbeError, OSError)):
            self._errors[model] += 1
            self._last_error[model] = f"{model}: {error}" if isinstance(error, OSError) else str(error)
            if isinstance(error, NotLoadedError):
                self._not_loaded.add(model)
            if isinstance(error, EngineError):
                self.broken_engine = str(error)
        else:
            raise error

    def _update_counters(self, now: float) -> None:
        """Record successes and progress of callers' requests: a model that answers them needs no probe."""
        if self._reading is None:
            self._reading = self._threads.submit(read_counters, self._metrics_port, self._timings.metrics_timeout_s)
        elif self._reading.done():
            reading, self._reading = self._reading, None
            if reading.exception() is None:
                self._metrics_at = now
                counters = reading.result()
                for model in self._succeeded_at:
                    if self.all_succeeded() and _grows(model, self._counters.successes, counters.successes):
                        self._succeeded_at[model] = now
                    if _grows(model, self._counters.work_s, counters.work_s):
                        self._progressed_at[model] = now
                self._counters = counters


def _grows(model: str, before: Mapping[str, float], now: Mapping[str, float]) -> bool:
    return now.get(model, 0) > before.get(model, 0)
