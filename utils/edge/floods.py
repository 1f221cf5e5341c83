"""A log that a flood of refusals does not fill."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable


class FloodLog:
    """Writes the first lines of each kind in a span of time, and then how many more there were."""

    def __init__(
        self, logger: logging.Logger, at_most: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Make one.

        Args:
            logger: where the lines go.
            at_most: lines of a kind in a span.
            seconds: length of a span.
            clock: of which only differences count.
        """
        self._logger, self._at_most, self._seconds, self._clock = logger, at_most, seconds, clock
        self._spans: dict[str, tuple[float, int]] = {}

    def log(self, kind: str, line: str) -> None:
        """Write a line, or count it.

        Args:
            kind: one of a few.
            line: what happened.
        """
        now = self._clock()
        began, count = self._spans.get(kind, (now, 0))
        if now - began >= self._seconds:
            if count > self._at_most:
                self._logger.info("%s: %d more in %.0f s", kind, count - self._at_most, now - began)
            began, count = now, 0
        self._spans[kind] = (began, count + 1)
        if count < self._at_most:
            self._logger.info("%s", line)
