"""Admission control: bounds on requests, body bytes and answer bytes in progress, shared fairly among callers."""

import asyncio
import contextlib
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast

from utils.api.errors import Overloaded, Stopping, mib

SMALL_ANSWER_BYTES = 65_536
"""Size up to which answers are not counted: the transport's buffer holds that much of any answer."""
ACTIVE_S = 10.0
"""Time for which a caller counts as active after a request."""
StartAnswer = Callable[[int], None]
STOPPING_DETAIL = "the service is shutting down and accepts no new requests; retry later"


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
    """A semaphore that lets waiting callers take turns, however many requests each of them has.

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
        # The caller who frees the slot comes last: its next request may have waited longer than another's first one.
        for next_caller in sorted(self._waiting, key=lambda waiting: waiting == caller):
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


class Admission:
    """Requests in progress in one API worker, and the bytes of their bodies and answers."""

    def __init__(self, max_requests: int, max_body_bytes: int, max_answer_bytes: int = 0) -> None:
        """Start without any requests. One caller gets at most three quarters of the requests and of the body bytes.

        Args:
            max_requests: requests in progress; a request stops counting when its answer begins.
            max_body_bytes: bytes of all bodies together, including those that are still arriving.
            max_answer_bytes: bytes of all answers that are being sent.
        """
        self._max_requests, self._max_body_bytes = max_requests, max_body_bytes
        self._max_answer_bytes = max_answer_bytes
        self._working: Counter[str] = Counter()
        self._body_bytes: Counter[str] = Counter()
        self._answer_bytes = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._aborted = False
        self.stopping = False
        """True if new requests are refused because the service stops."""
        self.in_progress = 0

    def check(self, caller: str = "") -> None:
        """Check that another request of a caller can be accepted.

        Raises:
            Stopping: the service is stopping.
            Overloaded: too many requests are in progress.
        """
        if self.stopping:
            raise Stopping(STOPPING_DETAIL)
        if (all_requests := self._working.total()) >= self._max_requests:
            raise Overloaded(f"too many requests in progress ({all_requests}); retry later")
        if (own := self._working[caller]) >= _share(self._max_requests):
            raise Overloaded(f"too many of your requests in progress ({own}); retry later")

    @contextlib.contextmanager
    def slot(self, caller: str = "") -> Iterator[StartAnswer]:
        """Hold a slot for one request of a caller, and yield a function that counts its answer in place of the request.

        The function takes the size of the answer in bytes, and raises `Overloaded` if too many bytes are being sent. A
        single answer may have any size.

        Raises:
            Stopping, Overloaded: as `check`.
        """
        self.check(caller)
        self.in_progress += 1
        add(self._working, caller, 1)
        answer_bytes: int | None = None

        def start_answer(size: int) -> None:
            nonlocal answer_bytes
            counted = size if size > SMALL_ANSWER_BYTES else 0
            if counted and self._answer_bytes and self._answer_bytes + counted > self._max_answer_bytes:
                raise Overloaded(f"too many answers are waiting to be read ({mib(self._answer_bytes)}); retry later")
            self._answer_bytes += counted
            add(self._working, caller, -1)
            answer_bytes = counted

        try:
            yield start_answer
        finally:
            if answer_bytes is None:
                add(self._working, caller, -1)
            else:
                self._answer_bytes -= answer_bytes
            self.in_progress -= 1

    def count_body_bytes(self, change: int, caller: str = "") -> None:
        """Add to the bytes of a caller's bodies; `change` may be negative.

        Raises:
            Overloaded: the limit is exceeded.
        """
        total, limit = self._body_bytes.total(), self._max_body_bytes
        if change > 0 and (total + change > limit or self._body_bytes[caller] + change > _share(limit)):
            raise Overloaded(f"request bodies take too much memory ({mib(total)}); retry later")
        add(self._body_bytes, caller, change)

    @contextlib.contextmanager
    def abortable(self, detail: str) -> Iterator[None]:
        """Let `abort_in_flight` cancel what this task does in the context.

        Raises:
            Stopping: the requests in progress are aborted; with the detail.
        """
        if self._aborted:
            raise Stopping(detail)
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._tasks.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if self._aborted:
                raise Stopping(detail) from None
            raise
        finally:
            self._tasks.discard(task)

    def abort_in_flight(self) -> None:
        """Abort the requests in progress."""
        self._aborted = True
        for task in self._tasks:
            task.cancel()


def _share(limit: int) -> int:
    """Return how much of a limit one caller may use."""
    return limit - limit // 4
