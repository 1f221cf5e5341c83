"""When to ask a busy service again."""

from __future__ import annotations

import random

BUSY = (429, 503)
"""Statuses of a refusal for now. A 504 is none: the work was begun, and would be again."""
LONGEST_WAIT = 30.0
"""Seconds, even where the service asks for more."""
FIRST_WAIT = 0.2
"""Seconds at most before the first retry, where the service does not say; doubled with each further one."""


def retry_after(header: str | None) -> float | None:
    """The seconds of a `Retry-After` header; None where it holds none (a date is not looked at)."""
    text = (header or "").strip()
    return float(text) if text.isascii() and text.isdigit() else None


def seconds_to_wait(attempt: int, asked: float | None) -> float:
    """How long to wait before the next try.

    Args:
        attempt: how many retries there were before, from 0.
        asked: seconds that the service asked for.
    """
    if asked is not None:
        return min(asked, LONGEST_WAIT)
    longest = min(FIRST_WAIT * 2**attempt, LONGEST_WAIT)
    return random.uniform(longest / 2, longest)  # noqa: S311 (it spreads callers, and hides nothing)
