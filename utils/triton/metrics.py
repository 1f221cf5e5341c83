"""Metrics of Triton: its health, as the watchdog finds it, and its own."""

import httpx

from utils.triton.health import Health

RESTART_CAUSES = ("died", "failed", "hung", "stopped")
"""Causes of Triton's restarts. Like all counters with few known labels, they are exported as 0 from
start-up: `increase()` misses the first step of a counter that first appears at 1."""
TRITON_TIMEOUT_S = 1.0
"""Time for Triton's answer, which usually takes milliseconds; shorter than the timeouts of
scrapers."""
UP_METRIC = "mobile_sam_triton_metrics_up"


def health_metrics(health: Health) -> bytes:
    """Return Triton's health in Prometheus' text format; the watchdog has no metrics registry."""
    restarts = dict.fromkeys(RESTART_CAUSES, 0) | dict(health.restarts)
    lines = [
        "# HELP mobile_sam_ready Whether every model has completed an inference recently",
        "# TYPE mobile_sam_ready gauge",
        f"mobile_sam_ready {int(health.ready)}",
        "# HELP mobile_sam_triton_restarts_total Restarts of Triton, by cause",
        "# TYPE mobile_sam_triton_restarts_total counter",
        *(
            f'mobile_sam_triton_restarts_total{{cause="{cause}"}} {n}'
            for cause, n in sorted(restarts.items())
        ),
    ]
    return "\n".join([*lines, ""]).encode()


async def triton_metrics(port: int) -> bytes:
    """Return a gauge that tells whether Triton answered at its metrics port on this machine, and
    its metrics if so.
    """
    try:
        # This machine's own Triton needs neither the environment's proxy nor certificates.
        async with httpx.AsyncClient(
            timeout=TRITON_TIMEOUT_S,
            trust_env=False,
            verify=False,  # noqa: S501
        ) as client:
            answer = (
                (await client.get(f"http://127.0.0.1:{port}/metrics")).raise_for_status().content
            )
    except httpx.HTTPError:
        answer = None
    help_and_type = (
        f"# HELP {UP_METRIC} Whether Triton's metrics could be read\n# TYPE {UP_METRIC} gauge\n"
    )
    return f"{help_and_type}{UP_METRIC} {int(answer is not None)}\n".encode() + (answer or b"")
