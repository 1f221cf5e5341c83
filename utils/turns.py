"""Who asks a model next: a bounded number of requests at once, and callers who wait take turns."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable

from utils.errors import Overloaded

ABOUT_S = 10.0
"""Seconds after a request for which its caller counts as one who may ask again."""


class About:
    """Which callers have asked of late."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Know of none.

        Args:
            clock: of which only differences count.
        """
        self._clock = clock
        self._came: OrderedDict[str, float] = OrderedDict()

    def note(self, caller: str) -> None:
        """This caller asks now."""
        now = self._clock()
        self._came[caller] = now
        self._came.move_to_end(caller)
        while next(iter(self._came.values())) < now - ABOUT_S:
            self._came.popitem(last=False)

    def others(self, caller: str) -> bool:
        """Whether another caller has been about of late."""
        latest = next((came for other, came in reversed(self._came.items()) if other != caller), None)
        return latest is not None and latest >= self._clock() - ABOUT_S


class Turns:
    """Places at a model. A caller with many requests is let in once for each of the others.

    While other callers are about, one has at most half of the places: another one's request then waits for less.
    """

    def __init__(
        self, places: int, most_waiting: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Make places.

        Args:
            places: requests at once.
            most_waiting: requests that may wait; None: as many as come.
            clock: of which only differences count.
        """
        self._free, self._most_waiting, self._about = places, most_waiting, About(clock)
        self._most_of_one = max(1, places // 2)
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._inside: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        """A place, when it is this caller's turn.

        Args:
            caller: whose request it is.

        Raises:
            Overloaded: as many wait as may.
        """
        await self._enter(caller)
        try:
            yield
        finally:
            self._leave(caller)

    def check(self) -> None:
        """Would a request be let in, or let wait?

        Raises:
            Overloaded: as many wait as may.
        """
        waiting = sum(map(len, self._waiting.values()))
        if self._most_waiting is not None and waiting >= self._most_waiting:
            raise Overloaded(f"{waiting} requests that take as long as this one wait already; try again in a moment")

    async def _enter(self, caller: str) -> None:
        self._about.note(caller)
        if self._free and self._may_enter(caller):
            self._take(caller)
            return
        self.check()
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # let in at the moment of leaving
                self._leave(caller)
            else:
                self._forget(caller, turn)
            raise

    def _take(self, caller: str) -> None:
        self._free -= 1
        self._inside[caller] += 1

    def _leave(self, caller: str) -> None:
        self._free += 1
        self._inside[caller] -= 1
        if not self._inside[caller]:
            del self._inside[caller]
        for next_caller in list(self._waiting):
            if self._free and self._may_enter(next_caller):
                turns = self._waiting.pop(next_caller)
                turn = turns.popleft()
                if turns:
                    self._waiting[next_caller] = turns  # at the end
                if not turn.done():
                    self._take(next_caller)
                    turn.set_result(None)

    def _may_enter(self, caller: str) -> bool:
        return self._inside[caller] < self._most_of_one or not self._about.others(caller)

    def _forget(self, caller: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(caller, deque())
        with contextlib.suppress(ValueError):
            turns.remove(turn)
        if not turns:
            self._waiting.pop(caller, None)
