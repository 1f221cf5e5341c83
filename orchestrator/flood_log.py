"""Log for lines that callers or an outage repeat: the first ones are written, the others are
counted.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable

MAX_ADDRESSES = 100
"""Addresses counted at a time for each kind of repeated line."""
MAX_NAMED_ADDRESSES = 3
"""Addresses named in a summary."""


class FloodLog:
    """Log that writes the first lines of each kind in a time window, then a summary of the
    others.
    """

    def __init__(
        self,
        logger: logging.Logger,
        max_lines: int,
        window_s: float,
        clock: Callable[[], float] = time.monotonic,
        level: int = logging.INFO,
    ) -> None:
        """Write to `logger` at most `max_lines` of one kind in a window of `window_s` seconds.

        `level` is the level of summaries, and of lines without a level of their own.
        """
        self._level = level
        self._logger, self._max_lines, self._window_s, self._clock = (
            logger,
            max_lines,
            window_s,
            clock,
        )
        self._windows: dict[str, _Window] = {}

    def log(
        self,
        kind: str,
        line: str,
        address: str = "",
        status: int = 0,
        *,
        error: BaseException | None = None,
        level: int | None = None,
    ) -> None:
        """Write a line, or count it.

        Args:
            kind: one of a small number of kinds.
            line: the line.
            address: address of the caller whom the line is about; empty for none.
            status: status of the answer, if the line is about one that was refused.
            error: an exception whose traceback follows the line.
            level: level of the line if it is another one than the log's.
        """
        self.summarise_ended()
        window = self._windows.setdefault(kind, _Window(self._clock()))
        window.lines += 1
        if window.lines <= self._max_lines:
            refusal = {"status": status, "reason": kind} if status else None
            level = self._level if level is None else level
            self._logger.log(level, "%s", line, extra={"refusal": refusal}, exc_info=error)
        elif address:
            window.count(address)

    def summarise_ended(self, *, all_windows: bool = False) -> None:
        """Write the summaries of windows that have ended, or of all; cheap if there are none."""
        now = self._clock()
        for kind, window in list(self._windows.items()):
            if not all_windows and now - window.start < self._window_s:
                continue
            try:
                del self._windows[kind]
            except KeyError:  # another thread has written its summary
                continue
            more = window.lines - self._max_lines
            if more > 0:
                line = f"{kind}: {more} more in {now - window.start:.0f} s"
                if window.has_addresses:
                    line += f", {window.top_addresses()}"
                self._logger.log(self._level, "%s", line, extra={"is_summary": True})


class _Window:
    """Lines of one kind in one time window."""

    def __init__(self, start: float) -> None:
        self.start, self.lines = start, 0
        self.has_addresses = False
        """Whether a counted line was about a caller."""
        self._counts: Counter[str] = Counter()

    def count(self, address: str) -> None:
        """Count a line that is not written, in bounded memory.

        A new address without room decrements every count (Misra and Gries, 1982). So a count is too
        low by at most 1 in `MAX_ADDRESSES` of the lines, and any address with a larger share than
        that is always kept.
        """
        self.has_addresses = True
        if address in self._counts or len(self._counts) < MAX_ADDRESSES:
            self._counts[address] += 1
        else:
            lower = {name: count - 1 for name, count in self._counts.items() if count > 1}
            self._counts = Counter(lower)

    def top_addresses(self) -> str:
        """Return the most frequent addresses and their counts."""
        top = self._counts.most_common(MAX_NAMED_ADDRESSES)
        return (
            ", ".join(f"at least {count} from {address}" for address, count in top)
            or "from many addresses"
        )
