"""A log that a flood of refusals does not fill."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable

MAX_ADDRESSES = 100
"""Addresses that are counted at a time for each kind of line."""
NAMED_ADDRESSES = 3
"""Addresses that a summary names at most."""


class FloodLog:
    """Writes the first lines of each kind in a span of time, and then how many more there were and from where."""

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
        self._spans: dict[str, _Span] = {}

    def log(self, kind: str, line: str, address: str) -> None:
        """Write a line, or count it.

        Args:
            kind: one of a few.
            line: what happened.
            address: who caused it.
        """
        self.summarise_ended()
        span = self._spans.setdefault(kind, _Span(self._clock()))
        span.lines += 1
        if span.lines <= self._at_most:
            self._logger.info("%s", line)
        else:
            span.count(address)

    def summarise_ended(self, *, all_spans: bool = False) -> None:
        """Write what was only counted in spans that have ended; cheap where there is none.

        Args:
            all_spans: end those that have not ended too.
        """
        now = self._clock()
        for kind, span in list(self._spans.items()):
            if all_spans or now - span.began >= self._seconds:
                del self._spans[kind]
                if (more := span.lines - self._at_most) > 0:
                    self._logger.info("%s: %d more in %.0f s, %s", kind, more, now - span.began, span.most())


class _Span:
    """What is known of the lines of one kind since a time."""

    def __init__(self, began: float) -> None:
        self.began, self.lines = began, 0
        self._counts: Counter[str] = Counter()

    def count(self, address: str) -> None:
        """Count a line that is not written, in bounded memory.

        An address without room takes one from each count (Misra and Gries, 1982). So counts may be too low, by at most
        1 in `MAX_ADDRESSES` of the lines, and an address that more lines came from is among them, however many others
        there are.
        """
        if address in self._counts or len(self._counts) < MAX_ADDRESSES:
            self._counts[address] += 1
        else:
            self._counts = Counter({known: count - 1 for known, count in self._counts.items() if count > 1})

    def most(self) -> str:
        """The addresses that most of them came from."""
        most = self._counts.most_common(NAMED_ADDRESSES)
        return ", ".join(f"{count} or more from {address}" for address, count in most) or "from many addresses"
