"""Bounded concurrency that is shared fairly among callers."""

import asyncio
import contextlib
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable

from utils.api.errors import Overloaded

ACTIVE_S = 10.0
"""Time for which a caller counts as active after a request."""


def add(counts: Counter[str], caller: str, change: int) -> None:
    """Add to the count of a caller; counts of 0 are dropped, so that they take no memory."""
    counts[caller] += change
    if not counts[caller]:
        del counts[caller]


class ActiveCallers:
    """Callers that sent a request recently."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_request: OrderedDict[str, float] = OrderedDict()

    def note(self, caller: str) -> None:
        """Note a request of a caller."""
        now = self._clock()
        self._last_request[caller] = now
        self._last_request.move_to_end(caller)
        while next(iter(self._last_request.values())) < now - ACTIVE_S:
            self._last_request.popitem(last=False)

    def has_others(self, caller: str) -> bool:
        """Return whether another caller is active."""
        latest = next((at for other, at in reversed(self._last_request.items()) if other != caller), None)
        return latest is not None and latest >= self._clock() - ACTIVE_S


class FairSemaphore:
    """A semaphore whose waiting callers take turns, however many requests each of them has.

    While other callers are active, one caller gets at most half of the slots, so that the others wait less.
    """

    def __init__(self, slots: int, max_waiting: int | None = None, active: ActiveCallers | None = None) -> None:
        """Create free slots.

        Args:
            slots: requests at once.
            max_waiting: requests that may wait; None: no limit.
            active: callers that share the slots; None: those that have asked for one.
        """
        self._free, self._max_waiting, self._active = slots, max_waiting, active or ActiveCallers()
        self._max_per_caller = max(1, slots // 2)
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._taken: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def slot(self, caller: str) -> AsyncIterator[None]:
        """Hold a slot, after waiting for the caller's turn.

        Raises:
            Overloaded: too many requests are waiting.
        """
        await self._acquire(caller)
        try:
            yield
        finally:
            self._release(caller)

    def has_others(self, caller: str) -> bool:
        """Return whether another caller is active."""
        return self._active.has_others(caller)

    def check(self) -> None:
        """Check that another request may wait.

        Raises:
            Overloaded: too many requests are waiting.
        """
        waiting = sum(map(len, self._waiting.values()))
        if self._max_waiting is not None and waiting >= self._max_waiting:
            raise Overloaded(f"too many requests of this cost are waiting ({waiting}); retry later")

    async def _acquire(self, caller: str) -> None:
        self._active.note(caller)
        if self._free and self._may_enter(caller):
            self._take(caller)
            return
        self.check()
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # got the slot just before the cancellation
                self._release(caller)
            else:
                self._forget(caller, turn)
            raise

    def _take(self, caller: str) -> None:
        self._free -= 1
        add(self._taken, caller, 1)

    def _release(self, caller: str) -> None:
        self._free += 1
        add(self._taken, caller, -1)
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
        return self._taken[caller] < self._max_per_caller or not self._active.has_others(caller)

    def _forget(self, caller: str, turn: asyncio.Future[None]) -> None:
        turns = self._waiting.get(caller, deque())
        with contextlib.suppress(ValueError):
            turns.remove(turn)
        if not turns:
            self._waiting.pop(caller, None)
