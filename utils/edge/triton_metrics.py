"""Triton's own metrics, which it shows on loopback alone, for the service's `/metrics`."""

from __future__ import annotations

import httpx

PATIENCE = 1.0
"""Seconds; Triton answers in milliseconds, and a scraper has less patience than a caller."""
UP = "mobile_sam_triton_metrics_up"


class TritonMetrics:
    """Asks one Triton."""

    def __init__(self, port: int) -> None:
        """Remember where; nothing is asked yet.

        Args:
            port: of the Triton's metrics on this machine.
        """
        self._url = f"http://127.0.0.1:{port}/metrics"

    async def __call__(self) -> bytes:
        """What Triton shows, in Prometheus' text format, and whether it does; for a Triton that is away, that alone."""
        try:
            # Neither a proxy of the environment nor certificates have to do with this machine's own Triton.
            async with httpx.AsyncClient(timeout=PATIENCE, trust_env=False, verify=False) as client:  # noqa: S501
                answer = (await client.get(self._url)).raise_for_status().content
        except httpx.HTTPError:
            answer = None
        help_and_type = f"# HELP {UP} Whether Triton showed its metrics\n# TYPE {UP} gauge\n"
        return f"{help_and_type}{UP} {int(answer is not None)}\n".encode() + (answer or b"")
