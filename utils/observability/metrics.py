"""Metrics: answers by reason, requests in progress, Triton's health and Triton's own.

Every label has a bounded number of values. BentoML's own metrics use the request's path as a label; the edge lets only
known paths through.
"""

import os
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx

from utils.triton import processes
from utils.triton.health import Health

RESTART_CAUSES = ("died", "failed", "hung", "stopped")
"""Causes of Triton's restarts, exported as 0 from start-up: `increase()` misses the first step of a counter that first
appears at 1."""
OTHER_PATH = "other"
"""Label of all unknown paths."""
TRITON_TIMEOUT_S = 1.0
"""Time for Triton's answer, which usually takes milliseconds; shorter than the timeouts of scrapers."""
UP_METRIC = "mobile_sam_triton_metrics_up"


class Counts:
    """Metrics of requests and answers, shared by all API workers."""

    # Import prometheus_client only after BentoML has set up the folder that its workers share.
    @cached_property
    def _answers(self) -> Any:
        from prometheus_client import Counter  # noqa: PLC0415

        return Counter(
            "mobile_sam_answers_total",
            "Answers by path, status and reason (ok, or the problem type)",
            ["path", "status", "reason"],
        )

    @cached_property
    def _in_progress(self) -> Any:
        from prometheus_client import Gauge  # noqa: PLC0415

        return Gauge(
            "mobile_sam_requests_in_progress",
            "Requests that are being answered or are queued",
            multiprocess_mode="livesum",
        )

    def count_answer(self, path: str, status: int, reason: str) -> None:
        """Count an answer."""
        self._answers.labels(path, str(status), reason).inc()

    def set_in_progress(self, requests: int) -> None:
        """Set the number of this worker's requests in progress."""
        self._in_progress.set(requests)


def forget_dead_workers() -> None:
    """Remove the gauges of workers that were killed."""
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if not folder:
        return
    from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415

    for file in Path(folder).glob("gauge_live*_*.db"):
        pid = file.stem.rpartition("_")[2]
        if pid.isdigit() and not processes.state(int(pid)):
            mark_process_dead(int(pid), folder)  # type: ignore[no-untyped-call]


def health_metrics(health: Health) -> bytes:
    """Return Triton's health in Prometheus' text format; the watchdog has no metrics registry."""
    restarts = dict.fromkeys(RESTART_CAUSES, 0) | dict(health.restarts)
    lines = [
        "# HELP mobile_sam_ready Whether every model has completed an inference recently",
        "# TYPE mobile_sam_ready gauge",
        f"mobile_sam_ready {int(health.ready)}",
        "# HELP mobile_sam_triton_restarts_total Restarts of Triton, by cause",
        "# TYPE mobile_sam_triton_restarts_total counter",
        *(f'mobile_sam_triton_restarts_total{{cause="{cause}"}} {n}' for cause, n in sorted(restarts.items())),
    ]
    return "\n".join([*lines, ""]).encode()


async def triton_metrics(port: int) -> bytes:
    """Return a gauge that tells whether Triton answered at its metrics port on this machine, and its metrics if so."""
    try:
        # This machine's own Triton needs neither the environment's proxy nor certificates.
        async with httpx.AsyncClient(timeout=TRITON_TIMEOUT_S, trust_env=False, verify=False) as client:  # noqa: S501
            answer = (await client.get(f"http://127.0.0.1:{port}/metrics")).raise_for_status().content
    except httpx.HTTPError:
        answer = None
    help_and_type = f"# HELP {UP_METRIC} Whether Triton's metrics could be read\n# TYPE {UP_METRIC} gauge\n"
    return f"{help_and_type}{UP_METRIC} {int(answer is not None)}\n".encode() + (answer or b"")
