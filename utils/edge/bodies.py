"""Request bodies as they arrive: with a cap, a time limit, and in bounded memory."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Callable

from starlette.types import Receive, Scope

from utils.edge.admission import Admission
from utils.edge.callers import ADDRESS
from utils.errors import BodyTooLarge, SlowBody, Stopping
from utils.turns import Turns

DRAINED, DRAIN_SECONDS = 64 * 2**20, 2.0
"""What is read of a body that nobody wants before its connection is closed: most clients look for an answer only after
they have sent everything, and lose it if the connection is closed under them."""


LARGE_BYTES, TURN_SECONDS, IDLE_SECONDS = 100_000, 0.5, 0.05
"""Larger bodies, and those of unknown length, are read in turns of so many seconds, or until nothing came for a while:
they take the event loop's time from everybody."""


class Gone(Exception):
    """The caller left before the body was complete."""


class Body:
    """A request's body, whose bytes count until it is let go of."""

    def __init__(self, scope: Scope, receive: Receive, admission: Admission, turns: Turns) -> None:
        """Of a request.

        Args:
            scope: the request.
            receive: where the body comes from.
            admission: counts its bytes.
            turns: in which large bodies are read.
        """
        self._receive, self._admission, self._turns = receive, admission, turns
        self._caller = ADDRESS.get()
        self.announced = content_length(scope)
        """Bytes that it is said to have; None where nothing is said."""
        self.chunked = any(name == b"transfer-encoding" for name, _ in scope["headers"])
        """Whether it comes in chunks, of which there may be any number."""
        self.ended = False
        """Whether all of it has been read."""
        self._size = self._chunks = 0
        # Not a list: a caller who sends single bytes would have each take 40. Not a variable: an error would keep it.
        self._data = io.BytesIO()

    @property
    def is_large(self) -> bool:
        """Whether it is read in turns."""
        return self.announced is None or self.announced > LARGE_BYTES

    async def read(self, most: int, seconds: float) -> bytes:
        """All of it.

        Args:
            most: bytes that it may have.
            seconds: that it may take.

        Raises:
            BodyTooLarge: it has more bytes, or says that it will.
            SlowBody: it took longer.
            Overloaded: the bodies that are being worked on take as much memory as they may.
            Stopping: the service does not wait for the rest.
            Gone: the caller left.
        """
        if self.announced is not None and self.announced > most:
            raise BodyTooLarge.of(most, self.announced)
        arrival = asyncio.ensure_future(self._all(most))
        cut = asyncio.ensure_future(self._admission.was_cut())
        try:
            await asyncio.wait({arrival, cut}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if arrival.done():
                return arrival.result()
        finally:
            arrival.cancel()
            cut.cancel()
        if cut.done():
            raise Stopping("the service is stopping and does not wait for the rest of the body")
        expected = "" if self.announced is None else f" of {self.announced}"
        raise SlowBody(f"expected the body within {seconds:g} s, got {self._size} bytes{expected}")

    async def drain(self) -> None:
        """Read the rest and forget it, until its end or until there are too many bytes or seconds."""

        left = DRAINED

        def forget(chunk: bytes) -> None:
            nonlocal left
            left -= len(chunk)
            if left < 0:
                raise Gone

        with contextlib.suppress(asyncio.TimeoutError, Gone):
            await asyncio.wait_for(self._in_turns(forget), DRAIN_SECONDS)

    def let_go(self) -> None:
        """Its bytes count no longer."""
        self._admission.hold(-self._size, self._caller)
        self._size = 0
        self._data = io.BytesIO()

    async def _all(self, most: int) -> bytes:
        if self.is_large:
            await self._in_turns(lambda chunk: self._keep(chunk, most))
        else:
            while not self.ended:
                self._keep(await self._next(), most)
        data, self._data = self._data, io.BytesIO()
        return data.getvalue()  # no copy

    def _keep(self, chunk: bytes, most: int) -> None:
        self._admission.hold(len(chunk), self._caller)
        self._size += len(chunk)
        if self._size > most:
            raise BodyTooLarge.of(most)
        self._data.write(chunk)

    async def _in_turns(self, take: Callable[[bytes], None]) -> None:
        """Read to the end, a while at a time."""
        loop = asyncio.get_running_loop()
        while not self.ended:
            async with self._turns.turn(self._caller):
                over, before = loop.time() + TURN_SECONDS, -1
                reading = asyncio.ensure_future(self._read_until(over, take))
                try:
                    while not reading.done() and self._chunks > before:  # one who sends slowly does not keep the turn
                        before = self._chunks
                        await asyncio.wait({reading}, timeout=IDLE_SECONDS)
                    if reading.done():
                        reading.result()
                finally:
                    reading.cancel()

    async def _read_until(self, over: float, take: Callable[[bytes], None]) -> None:
        while not self.ended and asyncio.get_running_loop().time() < over:
            take(await self._next())
            self._chunks += 1

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise Gone
        self.ended = not message.get("more_body", False)
        chunk: bytes = message.get("body", b"")
        return chunk


def content_length(scope: Scope) -> int | None:
    """Bytes that a request's body is said to have; None where nothing is said."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return None
