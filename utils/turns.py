"""Who asks a model next: a bounded number of requests at once, and callers who wait take turns."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict, deque
from collections.abc import AsyncIterator

from utils.errors import Overloaded


class Turns:
    """Places at a model. A caller with many requests is let in once for each of the others."""

    def __init__(self, places: int, most_waiting: int | None = None) -> None:
        """Make places.

        Args:
            places: requests at once.
            most_waiting: requests that may wait; None: as many as come.
        """
        self._free, self._most_waiting = places, most_waiting
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

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
            self._leave()

    def check(self) -> None:
        """Would a request be let in, or let wait?

        Raises:
            Overloaded: as many wait as may.
        """
        waiting = sum(map(len, self._waiting.values()))
        if self._most_waiting is not None and not self._free and waiting >= self._most_waiting:
            raise Overloaded(f"{waiting} requests that take as long as this one wait already; try again in a moment")

    async def _enter(self, caller: str) -> None:
        self.check()
        if self._free > 0:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # let in at the moment of leaving
                self._leave()
            else:
                self._forget(caller, turn)
            raise

    def _leave(self) -> None:
        while self._waiting:
            caller, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[caller] = turns  # at the end
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _forget(self, caller: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(caller, deque())
        with contextlib.suppress(ValueError):
            turns.remove(turn)
        if not turns:
            self._waiting.pop(caller, None)
