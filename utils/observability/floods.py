"""Logging of repeated events without flooding the log."""

import logging
import time
from collections import Counter
from collections.abc import Callable

MAX_ADDRESSES = 100
"""Addresses counted at a time for each kind of line."""
MAX_NAMED_ADDRESSES = 3
"""Addresses named in a summary."""


class FloodLog:
    """Log that writes the first lines of each kind in a time window, then a summary of the others."""

    def __init__(
        self, logger: logging.Logger, max_lines: int, window_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Write to `logger` at most `max_lines` of one kind in a window of `window_s` seconds."""
        self._logger, self._max_lines, self._window_s, self._clock = logger, max_lines, window_s, clock
        self._windows: dict[str, _Window] = {}

    def log(self, kind: str, line: str, address: str) -> None:
        """Write a line about a caller's address, or count it; there must be a small number of kinds."""
        self.summarise_ended()
        window = self._windows.setdefault(kind, _Window(self._clock()))
        window.lines += 1
        if window.lines <= self._max_lines:
            self._logger.info("%s", line)
        else:
            window.count(address)

    def summarise_ended(self, *, all_windows: bool = False) -> None:
        """Write the summaries of windows that have ended, or of all; cheap if there are none."""
        now = self._clock()
        for kind, window in list(self._windows.items()):
            if all_windows or now - window.start >= self._window_s:
                del self._windows[kind]
                if (more := window.lines - self._max_lines) > 0:
                    top = window.top_addresses()
                    self._logger.info("%s: %d more in %.0f s, %s", kind, more, now - window.start, top)


class _Window:
    """Lines of one kind in one time window."""

    def __init__(self, start: float) -> None:
        self.start, self.lines = start, 0
        self._counts: Counter[str] = Counter()

    def count(self, address: str) -> None:
        """Count a line that is not written, in bounded memory.

        A new address without room decrements every count (Misra and Gries, 1982). So a count is too low by at most
        1 in `MAX_ADDRESSES` of the lines, and any address with a larger share than that is always kept.
        """
        if address in self._counts or len(self._counts) < MAX_ADDRESSES:
            self._counts[address] += 1
        else:
            self._counts = Counter({known: count - 1 for known, count in self._counts.items() if count > 1})

    def top_addresses(self) -> str:
        """Return the most frequent addresses and their counts."""
        top = self._counts.most_common(MAX_NAMED_ADDRESSES)
        return ", ".join(f"at least {count} from {address}" for address, count in top) or "from many addresses"
