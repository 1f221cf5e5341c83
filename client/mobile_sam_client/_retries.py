"""Retry policy for a busy service."""

from __future__ import annotations

import random

RETRYABLE_STATUSES = (429, 503)
"""Statuses worth retrying. Not 504: the server has already done the work once."""
MAX_RETRY_WAIT_S = 30.0
"""Upper bound, also for the wait that the service asks for."""
FIRST_RETRY_WAIT_S = 0.2
"""Longest wait before the first retry without `Retry-After`; doubled for each further retry."""


def parse_retry_after(header: str | None) -> float | None:
    """Return the seconds of a `Retry-After` header, or None if it is missing or a date."""
    text = (header or "").strip()
    return float(text) if text.isascii() and text.isdigit() else None


def retry_wait_s(attempt: int, retry_after: float | None) -> float:
    """Return the seconds to wait before the next retry.

    Args:
        attempt: number of retries made so far.
        retry_after: seconds that the service asked for.
    """
    if retry_after is not None:
        return min(retry_after, MAX_RETRY_WAIT_S)
    longest = min(FIRST_RETRY_WAIT_S * 2**attempt, MAX_RETRY_WAIT_S)
    return random.uniform(longest / 2, longest)  # noqa: S311 (jitter, not cryptography)
