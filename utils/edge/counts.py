"""What the edge adds to the service's metrics: answers by reason, requests in progress, how Triton is.

BentoML's own metrics have the path of a request as a label, as it came; the edge lets through known paths alone. Here,
too, every label has a bounded number of values.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Any

from utils import processes
from utils.health import Health

CAUSES = ("died", "failed", "hung", "stopped")
"""Why the watchdog starts Triton again; shown from the start, for nothing is seen to grow that begins at 1."""
OTHER = "other"
"""The label of all paths that the service does not have."""


class Counts:
    """Counters in the registry that `/metrics` shows, for all API workers together."""

    # prometheus_client must not be imported before BentoML has set up the folder that its workers share.
    @cached_property
    def _answers(self) -> Any:
        from prometheus_client import Counter  # noqa: PLC0415

        return Counter(
            "mobile_sam_answers_total",
            "Answers by path, status and reason: ok, or the problem's type",
            ["path", "status", "reason"],
        )

    @cached_property
    def _in_progress(self) -> Any:
        from prometheus_client import Gauge  # noqa: PLC0415

        return Gauge(
            "mobile_sam_requests_in_progress",
            "Requests that are being answered or wait for their turn",
            multiprocess_mode="livesum",
        )

    def answered(self, path: str, status: int, reason: str) -> None:
        """Count an answer."""
        self._answers.labels(path, str(status), reason).inc()

    def progress(self, requests: int) -> None:
        """How many requests this worker is answering."""
        self._in_progress.set(requests)


def forget_dead_workers() -> None:
    """Have the gauges of workers that were killed no longer count."""
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if not folder:
        return
    from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415

    for file in Path(folder).glob("gauge_live*_*.db"):
        pid = file.stem.rpartition("_")[2]
        if pid.isdigit() and not processes.state(int(pid)):
            mark_process_dead(int(pid), folder)  # type: ignore[no-untyped-call]


def health_metrics(health: Health) -> bytes:
    """How Triton is, in Prometheus' text format; the watchdog has no registry of its own."""
    restarts = dict.fromkeys(CAUSES, 0) | dict(health.restarts)
    lines = [
        "# HELP mobile_sam_ready Whether every model has answered an inference of late",
        "# TYPE mobile_sam_ready gauge",
        f"mobile_sam_ready {int(health.ready)}",
        "# HELP mobile_sam_triton_restarts_total How often Triton was started again, by cause",
        "# TYPE mobile_sam_triton_restarts_total counter",
        *(f'mobile_sam_triton_restarts_total{{cause="{cause}"}} {n}' for cause, n in sorted(restarts.items())),
    ]
    return "\n".join([*lines, ""]).encode()
