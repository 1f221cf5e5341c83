"""Health of the models of one Triton run, from counters of callers' requests and from probes of
idle models.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from statistics import median_low
from typing import Any

from orchestrator import tensors
from utils.triton.watchdog import Timings
from utils.triton.watchdog.probes import (
    Counts,
    EngineError,
    FaultError,
    LocalTriton,
    NotLoadedError,
    OutOfMemoryError,
    ProbeError,
    check_engines,
    click,
)
from utils.triton.watchdog.process import FAILED, HUNG, RestartReason

MAX_CONSECUTIVE_ERRORS = 3
"""Consecutive errors of one probe after which Triton is restarted."""
IDLE_RUNS, LATE_RUNS, HUNG_RUNS = 20, 4, 8
"""Runs of a probe that take as long as the pause before the next one at least, and as it may last
before it is late and before it counts as hung. A probe of Segment Anything's ViT-H takes 16 s on
two cores."""
GROWTH = 1.2
ENCODE_TIMES = 9
"""Number of readings of the encoder's time whose median counts."""
START_FACTOR = 4
"""How much longer a probe may last before its first success: three of them encode at the same
time."""
NEVER = -float("inf")


@dataclass
class Probe:
    """A check whether models work, and its latest result."""

    name: str
    run: Callable[[float], object]
    """Takes a timeout in seconds, and raises if the models do not work."""
    idle_s: float
    """Time without a success after which it runs."""
    models: tuple[str, ...] = ()
    """Models that it runs: while callers' requests succeed in all of them, it is not needed."""
    pending: "Future[Any] | None" = None
    began_at: float = NEVER
    fastest_s: float = 0.0
    """Shortest run that succeeded, which grows a little with each longer one; 0 before the
    first."""
    succeeded_at: float = NEVER
    """Last success of the probe, or of callers' requests to all its models."""
    errors: int = 0
    """Errors since the last success."""
    error: Exception | None = None


@dataclass(frozen=True)
class Silence:
    """How long Triton or a probe has not answered, and what that means."""

    name: str
    """Who is silent."""
    s: float
    """Seconds since the last answer."""
    late_after_s: float
    """Seconds after which it counts as failing."""
    hung_after_s: float
    """Seconds after which it counts as hung."""


class HealthProbes:
    """Probe results and request counters of one Triton run.

    The probes are a click on a new image and one on a cached image. If other models than
    MobileSAM's are served, the only probe asks the server.
    """

    def __init__(
        self,
        triton: LocalTriton,
        hang_timeout_s: float,
        timings: Timings,
        *,
        models: bool = True,
        encode_s: float = 0.0,
    ) -> None:
        """Initialize without probing.

        Args:
            triton: the server.
            hang_timeout_s: time without success after which a probed model counts as hung.
            timings: times to wait.
            models: whether MobileSAM's models are served.
            encode_s: time that the encoder took in the run before; 0 if there was none.
        """
        self._updated_at, self._now = time.monotonic(), 0.0
        self._triton, self._hang_timeout_s, self._timings = triton, hang_timeout_s, timings
        new, cached = tensors.SEGMENT, tensors.SEGMENT_CACHED
        idle_s, encoder_idle_s = timings.idle_before_probe_s, timings.encoder_idle_before_probe_s
        self._engines = Probe("engines", self._check_engines, idle_s)
        self._probes = [
            Probe(
                new,
                partial(click, triton, new),
                encoder_idle_s,
                (new, tensors.ENCODER, tensors.DECODER),
            ),
            # Always needed: callers' requests succeed in it without its decoder if the image is
            # unknown.
            Probe(cached, partial(click, triton, cached), idle_s),
        ]
        self._at_start = [*self._probes, self._engines]
        if not models:
            self._at_start = self._probes = [Probe("tritonserver", triton.check_ready, idle_s)]
        self._threads = ThreadPoolExecutor(len(self._at_start) + 1)
        self._reading: Future[Counts] | None = None
        self._read_at = self._now
        self._counts = Counts()
        # Whether the models had started when the current counters were read, and those before.
        self._reads_after_start, self._read_after_start = False, False
        self._encode_s_at_start = encode_s
        self._encode_times: deque[float] = deque(maxlen=ENCODE_TIMES)
        self._success_at: dict[str, float] = {}

    def update(self) -> None:
        """Collect finished probes and start those that are due, without blocking."""
        # Bounded, so that a frozen container does not look like a hung model.
        updated_at, self._updated_at = self._updated_at, time.monotonic()
        self._now += min(self._updated_at - updated_at, self._timings.max_clock_step_s)
        started = self.all_succeeded()
        if not started:  # the probes can succeed before metrics are read for the first time
            self._read_at = self._now
        self._update_successes(started=started)
        for probe in self._probes if started else self._at_start:
            if probe.pending:
                self._collect(probe)
            elif self._is_due(probe, started=started):
                probe.began_at = self._now
                probe.pending = self._threads.submit(probe.run, self._hung_after_s(probe) + 10)

    def all_succeeded(self) -> bool:
        """Return whether every probe has succeeded, and the check of the engines."""
        return all(probe.succeeded_at > NEVER for probe in self._at_start)

    @property
    def encode_s(self) -> float:
        """Seconds that the encoder takes for an image: the median of the last times, 0 before the
        first.

        The runs at the start are slow, as several run at once on an engine that was never used. The
        fastest of them counts only as long as there are no others.
        """
        if self._encode_times:
            return median_low(self._encode_times)
        return self._encode_s_at_start

    def broken_engine(self) -> str:
        """Return how an engine was found broken and the remedy, or an empty string."""
        return str(self._engines.error) if isinstance(self._engines.error, EngineError) else ""

    def problem(self) -> str:
        """Return why Triton counts as failing, or an empty string if it does not."""
        if errors := [str(probe.error) for probe in self._probes if probe.errors]:
            return "; ".join(dict.fromkeys(errors))
        for silence in self._silences():
            if silence.s > silence.late_after_s:
                return f"{silence.name} has not answered for {silence.s:.0f} s"
        return ""

    def restart_reason(self) -> RestartReason | None:
        """Return why Triton must be restarted, or None if it need not be."""
        for probe in self._probes:
            if probe.errors >= MAX_CONSECUTIVE_ERRORS:
                return RestartReason(FAILED, f"{probe.errors} errors in a row: {probe.error}")
        for silence in self._silences():
            if silence.s > silence.hung_after_s:
                detail = f"no answer from {silence.name} for {silence.s:.0f} s"
                return RestartReason(HUNG, detail)
        return None

    def stub_presumed_dead(self) -> bool:
        """Return whether a probe found that Triton took a model's process for dead."""
        return any(isinstance(probe.error, FaultError) for probe in self._at_start)

    def close(self) -> None:
        """Stop waiting for probes."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _check_engines(self, timeout_s: float) -> None:
        """Check the engines; the error names them and a remedy."""
        try:
            check_engines(self._triton, timeout_s)
        except EngineError as error:
            engines = self._triton.engines(timeout_s)
            raise EngineError(
                f"{error} ({engines}): set MOBILE_SAM_ENGINE to openvino or onnxruntime"
            ) from None

    def _silences(self) -> Iterator[Silence]:
        """Yield the silence of Triton and of each pending probe.

        Triton's metrics do not depend on the models. A model that answers callers is not silent
        while its probe waits.
        """
        timeout_s = self._timings.metrics_timeout_s
        yield Silence("Triton", self._now - self._read_at, timeout_s / 2, timeout_s)
        for probe in self._probes:
            if not probe.pending:
                continue
            models = (probe.name, *probe.models)
            answers = [self._success_at.get(model, NEVER) for model in models]
            silence_s = self._now - max(probe.began_at, probe.succeeded_at, *answers)
            hung_after_s = self._hung_after_s(probe)
            late_after_s = max(self._timings.late_after_s, LATE_RUNS * probe.fastest_s)
            late_after_s = min(late_after_s, hung_after_s)
            yield Silence(probe.name, silence_s, late_after_s, hung_after_s)

    def _hung_after_s(self, probe: Probe) -> float:
        started = probe.succeeded_at > NEVER
        return max(
            self._hang_timeout_s * (1 if started else START_FACTOR), HUNG_RUNS * probe.fastest_s
        )

    def _is_due(self, probe: Probe, *, started: bool) -> bool:
        if probe.errors:
            return not started or self._now - probe.began_at >= self._timings.retry_interval_s
        return self._now - probe.succeeded_at > max(probe.idle_s, IDLE_RUNS * probe.fastest_s)

    def _collect(self, probe: Probe) -> None:
        if probe.pending is None or not probe.pending.done():
            return
        error, probe.pending = probe.pending.exception(), None
        if error is None:
            took_s = self._now - probe.began_at
            probe.fastest_s = min(took_s, GROWTH * probe.fastest_s or took_s)
            probe.succeeded_at, probe.errors, probe.error = self._now, 0, None
        else:
            # Unloading is deliberate, and a restart gives a GPU no memory.
            is_lasting = isinstance(error, NotLoadedError | OutOfMemoryError)
            probe.errors = 1 if is_lasting else probe.errors + 1
            described = f"{probe.name}: {error or type(error).__name__}"
            probe.error = error if isinstance(error, ProbeError) else ProbeError(described)

    def _update_successes(self, *, started: bool) -> None:
        """Record successes of callers' requests: models that answer them need no probe."""
        if self._reading and self._reading.done():
            if self._reading.exception() is None:
                self._read_at, before, self._counts = (
                    self._now,
                    self._counts,
                    self._reading.result(),
                )
                self._success_at |= dict.fromkeys(
                    self._counts.successes - before.successes, self._now
                )
                self._update_encode_times(before)
                for probe in self._probes if started else ():
                    used_at = min(
                        (self._success_at.get(model, NEVER) for model in probe.models),
                        default=NEVER,
                    )
                    probe.succeeded_at = max(probe.succeeded_at, used_at)
            self._reading = None
        elif self._reading is None:
            self._reads_after_start = started
            self._reading = self._threads.submit(
                self._triton.counts, self._timings.metrics_timeout_s
            )

    def _update_encode_times(self, before: Counts) -> None:
        """Record the mean time of the encoder's runs since the counters before."""
        began_after_start, self._read_after_start = self._read_after_start, self._reads_after_start
        runs = self._counts.successes[tensors.ENCODER] - before.successes[tensors.ENCODER]
        seconds = self._counts.encode_s - before.encode_s
        if runs <= 0 or seconds <= 0:  # none, or the counters of an unloaded version are gone
            return
        mean_s = seconds / runs
        if began_after_start:
            self._encode_times.append(mean_s)
        elif not self._encode_s_at_start or mean_s < self._encode_s_at_start:
            self._encode_s_at_start = mean_s
