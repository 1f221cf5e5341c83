"""Which requests are taken: a bounded number at once, and none once the service stops."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from utils.errors import Overloaded, Stopping
from utils.turns import About

SMALL_ANSWER_BYTES = 65_536
"""Largest answer that is not counted: so much of any answer waits outside of the application for its reader."""
PROMPT_REFUSALS = 10
"""Refusals in a second that a caller of a busy service has at once."""
STOPS = "the service finishes what it has and takes nothing new; try again, it may be back by then"


class Admission:
    """The requests of one API worker that are being answered or wait for Triton, and the bytes they hold."""

    def __init__(self, most: int, most_bytes: int, most_answer_bytes: int = 0) -> None:
        """Make an empty one.

        Args:
            most: requests at once that are worked on; answers that wait for their readers do not count. One caller has
                at most three quarters of them.
            most_bytes: bytes of their bodies, and of those that are still arriving; of one caller three quarters.
            most_answer_bytes: bytes of the answers that wait for their readers.
        """
        self._most, self._most_bytes, self._most_answer_bytes = most, most_bytes, most_answer_bytes
        self._most_of_one = most - most // 4
        self._working: Counter[str] = Counter()
        self._held: Counter[str] = Counter()
        self._answer_bytes = 0
        self._stopping = False
        self._cut = False
        self._waiting: set[asyncio.Future[None]] = set()
        self.in_progress = 0

    @property
    def stopping(self) -> bool:
        """Whether nothing new is taken any more."""
        return self._stopping

    def check(self, caller: str = "") -> None:
        """Would a request be taken now?

        Args:
            caller: whose it is.

        Raises:
            Stopping: the service is on its way out.
            Overloaded: there are as many as there may be.
        """
        if self._stopping:
            raise Stopping(STOPS)
        working = self._working.total()
        if working >= self._most:
            raise Overloaded(f"{working} requests are being answered or wait already; try again in a moment")
        if (own := self._working[caller]) >= self._most_of_one:
            raise Overloaded(f"{own} requests of yours are being answered or wait already; try again in a moment")

    @contextmanager
    def place(self, caller: str = "") -> Iterator[Place]:
        """A place among the requests being answered.

        Args:
            caller: whose request it is.

        Raises:
            Stopping, Overloaded: as `check`.
        """
        self.check(caller)
        self.in_progress += 1
        place = Place(self, caller)
        try:
            yield place
        finally:
            place.leave()
            self.in_progress -= 1

    def work(self, caller: str, requests: int) -> None:
        """Count a caller's requests that are worked on; a negative number: no longer."""
        self._working[caller] += requests
        if not self._working[caller]:
            del self._working[caller]

    def answer(self, size: int) -> None:
        """Count `size` more bytes of answers that wait for their readers; a negative number: no longer.

        Raises:
            Overloaded: there are as many as there may be. One answer alone may have any number.
        """
        if size > 0 and self._answer_bytes and self._answer_bytes + size > self._most_answer_bytes:
            raise Overloaded(f"answers of {self._answer_bytes} bytes wait for their readers; try again in a moment")
        self._answer_bytes += size

    def hold(self, size: int, caller: str = "") -> None:
        """Count `size` more bytes of a caller's bodies; a negative number lets go of some.

        Raises:
            Overloaded: there are as many as there may be.
        """
        held, own = self._held.total(), self._held[caller]
        if size > 0 and (held + size > self._most_bytes or own + size > self._most_bytes * 3 // 4):
            raise Overloaded(f"bodies of {held} bytes are being worked on already; try again in a moment")
        self._held[caller] += size
        if not self._held[caller]:
            del self._held[caller]

    def stop(self) -> None:
        """Take nothing new."""
        self._stopping = True

    def cut(self) -> None:
        """Give up on what is still being answered."""
        self._cut = True
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    async def was_cut(self) -> None:
        """Returns when what is being answered is to be given up."""
        if self._cut:
            return
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)


class Pace:
    """How soon refusals are sent.

    A caller who asks again as soon as there is a refusal has hundreds of them a second, and the time of the event loop
    with them. While others are about, further ones wait as long as they tell the caller to.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin.

        Args:
            clock: of which only differences count.
        """
        self._clock, self._about = clock, About(clock)
        self._began, self._refused = clock(), Counter[str]()

    def asks(self, caller: str) -> None:
        """A caller has asked for work."""
        self._about.note(caller)

    def refusal(self, caller: str) -> float:
        """Seconds that a refusal of this caller's waits."""
        now = self._clock()
        if now - self._began >= Overloaded.retry_after:
            self._began = now
            self._refused.clear()
        self._refused[caller] += 1
        waits = self._refused[caller] > PROMPT_REFUSALS and self._about.others(caller)
        return float(Overloaded.retry_after) if waits else 0.0


class Place:
    """A request's place: among those that are worked on, then, while its answer is sent, among those that wait."""

    def __init__(self, admission: Admission, caller: str) -> None:
        """Take one, as `Admission.place` does."""
        self._admission, self._caller = admission, caller
        self._size: int | None = None
        admission.work(caller, 1)

    def answers(self, size: int) -> None:
        """The work is done; an answer of `size` bytes begins.

        Raises:
            Overloaded: as `Admission.answer`.
        """
        counted = size if size > SMALL_ANSWER_BYTES else 0
        self._admission.answer(counted)
        self._admission.work(self._caller, -1)
        self._size = counted

    def leave(self) -> None:
        """The caller has the answer, or there is none."""
        if self._size is None:
            self._admission.work(self._caller, -1)
        else:
            self._admission.answer(-self._size)
