"""Limits of one request."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of one request."""

    max_body_bytes: int
    body_timeout_s: float
    """Time for the whole body."""
    answer_timeout_s: Callable[[], float]
    """Returns the time from the end of the body to the start of the answer."""
