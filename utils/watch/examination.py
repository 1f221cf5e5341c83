"""Whether the models of one run of Triton answer: callers' requests are looked at, and silent models are asked."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from utils.versions import ENCODER
from utils.watch.probes import Counted, NotLoadedError, ProbeError, counted, questions

ASK_AFTER, ASK_ENCODER_AFTER = 10.0, 30.0
"""Seconds without an answer to anybody after which a model is asked; the encoder's is work for all cores."""
ASK_AGAIN_AFTER, ASK_AT_START_AFTER = 1.0, 0.4
"""Seconds from an error to the next question."""
LATE_AFTER = 15.0
"""Seconds that a probe may take before the model counts as failing: it waits its turn behind callers' requests."""
MUTE_AFTER = 10.0
"""Seconds without an answer from Triton's own metrics, which wait for no model."""
LONGEST_STEP = 2.0
"""Seconds between two looks of a watchdog that runs, at most."""
FAILURES = 3
"""Errors in a row from one model after which Triton is started again."""


class Examination:
    """What the models of one run of Triton have answered."""

    def __init__(self, port: int, metrics_port: int, patience: float) -> None:
        """Begin.

        Args:
            port: of Triton's HTTP.
            metrics_port: of its metrics.
            patience: seconds that a model may leave a question unanswered.
        """
        self._looked_at, self._now = time.monotonic(), 0.0
        self._port, self._metrics_port, self._patience = port, metrics_port, patience
        self._questions = questions()
        self._threads = ThreadPoolExecutor(len(self._questions) + 1)
        self._pending: dict[str, tuple[float, Future[None]]] = {}
        self._counts = Counted({}, {})
        self._counting: Future[Counted] | None = None
        self._heard_at = self._now
        self._answered_at = dict.fromkeys(self._questions, -float("inf"))
        self._worked_at = dict(self._answered_at)
        self._errors: Counter[str] = Counter()
        self._last_error: dict[str, str] = {}
        self._not_loaded: set[str] = set()
        self._asked_at: dict[str, float] = {}

    def go_on(self) -> None:
        """Take in what has come, and ask what is due. Never waits."""
        # Time in which the watchdog itself did not run (a frozen container) is nobody else's silence.
        looked_at, self._looked_at = self._looked_at, time.monotonic()
        now = self._now = self._now + min(self._looked_at - looked_at, LONGEST_STEP)
        self._count(now)
        for model, question in self._questions.items():
            if model in self._pending:
                self._take(model, now)
            elif self._is_due(model, now):
                self._asked_at[model] = now
                self._pending[model] = (now, self._threads.submit(question, self._port, self._patience + 10))

    def complete(self) -> bool:
        """Whether every model has answered."""
        return all(at > -float("inf") for at in self._answered_at.values())

    def complaint(self) -> str:
        """Why not every model counts as working; empty where all do."""
        now = self._now
        if self._errors:
            return "; ".join(self._last_error[model] for model in self._errors)
        if now - self._heard_at > MUTE_AFTER / 2:
            return f"Triton has not answered for {now - self._heard_at:.0f} s"
        for model, waited in self._waits(now):
            if waited > LATE_AFTER:
                return f"{model} has not answered for {waited:.0f} s"
        return ""

    def verdict(self) -> tuple[str, str]:
        """Why Triton must be started again, in a word and in many; two empty texts where it need not."""
        now = self._now
        for model, count in self._errors.items():
            if count >= FAILURES and model not in self._not_loaded:  # what was unloaded, was on purpose
                return "failed", f"{count} errors in a row: {self._last_error[model]}"
        if now - self._heard_at > MUTE_AFTER:
            return "hung", f"no answer from Triton for {now - self._heard_at:.0f} s"
        for model, waited in self._waits(now):
            if waited > self._patience:
                return "hung", f"no answer from {model} for {waited:.0f} s"
        return "", ""

    def end(self) -> None:
        """No longer wait for answers."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _waits(self, now: float) -> list[tuple[str, float]]:
        """How long each model that is being asked has neither answered anybody nor got on with anybody's request."""
        return [
            (model, now - max(asked, self._answered_at[model], self._worked_at[model]))
            for model, (asked, _) in self._pending.items()
        ]

    def _is_due(self, model: str, now: float) -> bool:
        since = now - self._asked_at.get(model, -float("inf"))
        if model in self._errors:
            return since >= (ASK_AGAIN_AFTER if self.complete() else ASK_AT_START_AFTER)
        return now - self._answered_at[model] > (ASK_ENCODER_AFTER if model == ENCODER else ASK_AFTER)

    def _take(self, model: str, now: float) -> None:
        _, future = self._pending[model]
        if not future.done():
            return
        del self._pending[model]
        error = future.exception()
        self._not_loaded.discard(model)
        if error is None:
            self._answered_at[model] = now
            del self._errors[model]
        elif isinstance(error, (ProbeError, OSError)):
            self._errors[model] += 1
            self._last_error[model] = f"{model}: {error}" if isinstance(error, OSError) else str(error)
            if isinstance(error, NotLoadedError):
                self._not_loaded.add(model)
        else:
            raise error

    def _count(self, now: float) -> None:
        """Whose request a model answers does not matter: what callers get answered need not be asked again."""
        if self._counting is None:
            self._counting = self._threads.submit(counted, self._metrics_port, MUTE_AFTER)
        elif self._counting.done():
            counting, self._counting = self._counting, None
            if counting.exception() is None:
                self._heard_at = now
                counts = counting.result()
                for model in self._answered_at:
                    if self.complete() and _grows(model, self._counts.successes, counts.successes):
                        self._answered_at[model] = now
                    if _grows(model, self._counts.work, counts.work):
                        self._worked_at[model] = now
                self._counts = counts


def _grows(model: str, before: Mapping[str, float], now: Mapping[str, float]) -> bool:
    return now.get(model, 0) > before.get(model, 0)
