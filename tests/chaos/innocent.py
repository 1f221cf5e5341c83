"""Innocent caller, who clicks during an attack, and the outcomes of the clicks."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.figures import percentile
from tests.chaos.callers import Outcomes, click, crowd, photo
from tests.chaos.figures import Figure, listed
from tests.e2e.server import Server

ADDRESS = "127.0.0.2"
"""Source address; the attackers use 127.0.0.1."""
PAUSE_S = 0.2
"""Time between the starts of two clicks."""


class InnocentCaller:
    """Caller who clicks on one image, over a new connection each time to notice a full accept queue."""

    def __init__(self, server: Server, alone_s: float = 0.0) -> None:
        """Click without attackers first.

        Args:
            server: a running service.
            alone_s: seconds to click for the comparison of `figures` with `max_slowdown`.
        """
        self._port = server.port
        self._body = click(photo(4711))
        with self.clicking():
            time.sleep(1.0)  # encode the image
        with self.clicking() as self._alone:
            time.sleep(alone_s)
        self._attacked = Outcomes()

    @contextmanager
    def clicking(self) -> Iterator[Outcomes]:
        """Click until the context ends; `figures` is about the latest clicks."""
        with crowd(self._port, lambda: self._body, 1, pause=PAUSE_S, keep=False, address=ADDRESS) as outcomes:
            self._attacked = outcomes
            yield outcomes

    def figures(self, name: str, max_slowdown: float | None = None) -> Iterator[Figure]:
        """Return figures of the latest clicks.

        Args:
            name: name of the scenario.
            max_slowdown: goal for the ratio of p95 to that without attackers; None: no goal.
        """
        reasons, answered = self._attacked.reasons(), len(self._attacked.answered())
        failed = len(self._attacked.all) - answered
        yield Figure(name, f"innocent caller: failed clicks ({listed(reasons)})", failed, 0)
        yield Figure(name, "innocent caller: answered clicks", answered, 1, at_least=True)
        if max_slowdown is not None:
            alone, attacked = (
                1000 * percentile([outcome.seconds for outcome in outcomes.answered()] or [0.0], 95)
                for outcomes in (self._alone, self._attacked)
            )
            yield Figure(name, f"innocent caller: p95 (alone {alone:.0f} ms)", attacked, max_slowdown * alone, "ms")
