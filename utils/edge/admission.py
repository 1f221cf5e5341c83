"""Which requests are taken: a bounded number at once, and none once the service stops."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from utils.errors import Overloaded, Stopping

STOPS = "the service finishes what it has and takes nothing new; try again, it may be back by then"


class Admission:
    """The requests of one API worker that are being answered or wait for Triton, and the bytes they hold."""

    def __init__(self, most: int, most_bytes: int) -> None:
        """Make an empty one.

        Args:
            most: requests at once.
            most_bytes: bytes of their bodies, and of those that are still arriving.
        """
        self._most, self._most_bytes = most, most_bytes
        self._held = 0
        self._stopping = False
        self._cut = False
        self._waiting: set[asyncio.Future[None]] = set()
        self.in_progress = 0

    @property
    def stopping(self) -> bool:
        """Whether nothing new is taken any more."""
        return self._stopping

    def check(self) -> None:
        """Would a request be taken now?

        Raises:
            Stopping: the service is on its way out.
            Overloaded: there are as many as there may be.
        """
        if self._stopping:
            raise Stopping(STOPS)
        if self.in_progress >= self._most:
            raise Overloaded(f"{self.in_progress} requests are being answered or wait already; try again in a moment")

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place among the requests being answered.

        Raises:
            Stopping, Overloaded: as `check`.
        """
        self.check()
        self.in_progress += 1
        try:
            yield
        finally:
            self.in_progress -= 1

    def hold(self, size: int) -> None:
        """Count `size` more bytes of bodies; a negative number lets go of some.

        Raises:
            Overloaded: there are as many as there may be.
        """
        if size > 0 and self._held + size > self._most_bytes:
            raise Overloaded(f"bodies of {self._held} bytes are being worked on already; try again in a moment")
        self._held += size

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
