"""Control client, which clicks during an attack, and the outcomes of the clicks."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from benchmarks.stats import percentile
from harness import Server
from harness.load import Replies, Request, crowd
from tests.chaos.callers import NONE, click, photo
from tests.chaos.figures import Figure, died, listed, ready_afterwards, restarts

ADDRESS = "127.0.0.2"
"""Source address; the attackers use 127.0.0.1."""
PAUSE_S = 0.2
"""Time between the starts of two clicks."""


class ControlClient:
    """Caller who clicks on one image, over a new connection each time to notice a full accept
    queue.
    """

    def __init__(
        self, server: Server, alone_s: float = 0.0, headers: Mapping[str, str] = NONE
    ) -> None:
        """Click without attackers first.

        Args:
            server: a running service.
            alone_s: seconds to click for the comparison of `figures` with `max_slowdown`.
            headers: further headers of the clicks.
        """
        self._server, self._workers, self._restarts = server, server.workers(), restarts(server)
        self._click = click(photo(4711), headers)
        with self.clicking():
            time.sleep(1.0)  # encode the image
        with self.clicking() as self._alone:
            time.sleep(alone_s)

    @contextmanager
    def clicking(self) -> Iterator[Replies]:
        """Click and ask `/livez` until the context ends; `figures` is about the latest clicks."""
        caller = partial(
            crowd, self._server.port, callers=1, pause=PAUSE_S, keep=False, address=ADDRESS
        )
        probing, clicking = caller(lambda: Request("/livez")), caller(lambda: self._click)
        with probing as self._probes, clicking as self._attacked:
            yield self._attacked

    def figures(
        self, name: str, max_slowdown: float | None = None, floor_ms: float = 0.0
    ) -> Iterator[Figure]:
        """Return figures of the latest clicks, and of the service after them.

        Args:
            name: name of the scenario.
            max_slowdown: goal for the ratio of p95 to that without attackers; None: no goal.
            floor_ms: p95 that is good in any case.
        """
        reasons, answered = self._attacked.reasons(), len(self._attacked.answered())
        failed = len(self._attacked.all) - answered
        yield Figure(name, f"control client: failed clicks ({listed(reasons)})", failed, 0)
        yield Figure(name, "control client: answered clicks", answered, 1, at_least=True)
        slowest = max(
            (probe.seconds if probe.ok else float("inf") for probe in self._probes.all),
            default=float("inf"),
        )
        yield Figure(name, f"slowest of {len(self._probes.all)} answers of /livez", slowest, 1, "s")
        if max_slowdown is not None:
            alone, attacked = (
                1000 * percentile(waits(outcomes) or [0.0], 95)
                for outcomes in (self._alone, self._attacked)
            )
            goal = max(max_slowdown * alone, floor_ms)
            yield Figure(name, f"control client: p95 (alone {alone:.0f} ms)", attacked, goal, "ms")
        yield Figure(name, "restarts of Triton", restarts(self._server) - self._restarts, 0)
        yield died(name, self._server, self._workers)
        yield ready_afterwards(name, self._server)


def waits(outcomes: Replies) -> list[float]:
    """Return the seconds of answered clicks, and of those that were due while the caller waited
    for a slow one.
    """
    return [
        outcome.seconds - PAUSE_S * due
        for outcome in outcomes.answered()
        for due in range(1 + int(outcome.seconds / PAUSE_S))
    ]
