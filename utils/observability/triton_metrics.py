"""Triton's own metrics, fetched from loopback for the service's `/metrics`."""

from __future__ import annotations

import httpx

TIMEOUT_S = 1.0
"""Time for Triton's answer, which usually takes milliseconds; shorter than the timeouts of scrapers."""
UP_METRIC = "mobile_sam_triton_metrics_up"


class TritonMetrics:
    """Reader of one Triton's metrics."""

    def __init__(self, port: int) -> None:
        """Store the address.

        Args:
            port: Triton's metrics port on this machine.
        """
        self._url = f"http://127.0.0.1:{port}/metrics"

    async def __call__(self) -> bytes:
        """Return a gauge that tells whether Triton answered, and its metrics if it did, in Prometheus' text format."""
        try:
            # This machine's own Triton needs neither the environment's proxy nor certificates.
            async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False, verify=False) as client:  # noqa: S501
                answer = (await client.get(self._url)).raise_for_status().content
        except httpx.HTTPError:
            answer = None
        help_and_type = f"# HELP {UP_METRIC} Whether Triton's metrics could be read\n# TYPE {UP_METRIC} gauge\n"
        return f"{help_and_type}{UP_METRIC} {int(answer is not None)}\n".encode() + (answer or b"")
