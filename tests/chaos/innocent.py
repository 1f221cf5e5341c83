"""An innocent caller: clicks on an image of their own while others attack, and what became of the clicks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.chaos.callers import Outcomes, click, crowd, percentile, photo
from tests.chaos.figures import Figure, port_of
from tests.e2e.server import Server

ADDRESS = "127.0.0.2"
"""The attackers have 127.0.0.1."""
PAUSE_S = 0.2
"""From one click to the next."""


class Innocent:
    """Clicks on one image, over a new connection each time, so that a full queue of connections is felt too."""

    def __init__(self, server: Server, alone_s: float = 6.0) -> None:
        """Click alone for a while, for comparison.

        Args:
            server: a running service.
            alone_s: seconds to click alone.
        """
        self._port = port_of(server)
        self._body = click(photo(4711))
        with self.clicking():
            time.sleep(1.0)  # the image is encoded
        with self.clicking() as outcomes:
            time.sleep(alone_s)
        self.alone = outcomes
        self.beside = Outcomes()

    @contextmanager
    def clicking(self) -> Iterator[Outcomes]:
        """Click until the context ends; the outcomes are also added to `beside`."""
        with crowd(self._port, lambda: self._body, 1, pause=PAUSE_S, keep=False, address=ADDRESS) as outcomes:
            self.beside = outcomes
            yield outcomes

    def figures(self, name: str, most: float | None = None, expected: frozenset[str] = frozenset()) -> Iterator[Figure]:
        """What became of the last clicks.

        Args:
            name: of the scenario.
            most: times as long as alone that clicks may take, at the 95th percentile; None: any.
            expected: reasons that are no failure here.
        """
        failed = {why: n for why, n in self.beside.reasons().items() if why != "ok" and why not in expected}
        seen = ", ".join(f"{why} {n}" for why, n in self.beside.reasons().most_common())
        yield Figure(name, f"innocent caller: failed clicks ({seen})", sum(failed.values()), 0)
        yield Figure(name, "innocent caller: answered clicks", len(self.beside.answered()), 1, at_least=True)
        if most is not None:
            alone, beside = (
                1000 * percentile([outcome.seconds for outcome in outcomes.answered()], 0.95)
                for outcomes in (self.alone, self.beside)
            )
            yield Figure(name, f"innocent caller: p95 (alone {alone:.0f} ms)", beside, most * alone, "ms")
