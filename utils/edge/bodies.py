"""Reading of request bodies: capped, within a time limit and in bounded memory."""

import asyncio
import contextlib
import io
from collections.abc import Callable

from starlette.types import Receive, Scope

from utils.api.errors import BodyTooLarge, SlowBody, Stopping
from utils.edge.admission import Admission, FairSemaphore
from utils.observability.context import ADDRESS

MAX_DRAIN_BYTES, DRAIN_TIMEOUT_S = 48 * 2**20, 2.0
"""Limits for discarding a refused body before the connection is closed. Most clients read the answer only after they
have sent everything, and lose it if the connection is closed earlier."""

LARGE_BODY_BYTES, TURN_S, IDLE_S = 100_000, 0.5, 0.05
"""Bodies above this size, or of unknown length, are read in turns, because they take much of the event loop's time. A
turn ends after `TURN_S`, or after `IDLE_S` without data."""
SHARED_BYTES_PER_S, MAX_LEAD_S = 50_000_000, 0.01
"""Rate at which a large body is read while other callers are active, and how far ahead of it the reader may be."""


class ClientDisconnected(Exception):
    """The caller disconnected before the request was complete or answered."""


class Body:
    """A request body. Its bytes count towards the worker's limit until `release`."""

    def __init__(self, scope: Scope, receive: Receive, admission: Admission, large_bodies: FairSemaphore) -> None:
        self._receive, self._admission, self._large_bodies = receive, admission, large_bodies
        self._caller = ADDRESS.get()
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"")
        self.content_length = int(length) if length.isdigit() else None
        """Announced size in bytes; None without a Content-Length."""
        self.chunked = b"transfer-encoding" in headers
        """True if the body has a chunked encoding, and so no known length."""
        self.ended = False
        """True once the whole body has been read."""
        self._size = self._chunks = 0
        # Not a list, where each single byte takes 40. Not a local variable, which the traceback of an error keeps.
        self._data = io.BytesIO()

    @property
    def is_large(self) -> bool:
        """True if the body is read in turns."""
        return self.content_length is None or self.content_length > LARGE_BODY_BYTES

    async def read(self, max_bytes: int, timeout_s: float) -> bytes:
        """Return the whole body.

        Raises:
            BodyTooLarge: the body or its Content-Length exceeds `max_bytes`.
            SlowBody: the body did not arrive within `timeout_s`.
            Overloaded: the bodies in progress take too much memory.
            Stopping: the service stops and does not wait for the rest.
            ClientDisconnected: the caller disconnected.
        """
        if self.content_length is not None and self.content_length > max_bytes:
            raise BodyTooLarge.of(max_bytes, self.content_length)
        arrival = asyncio.ensure_future(self._read_all(max_bytes))
        aborted = asyncio.ensure_future(self._admission.wait_aborted())
        try:
            await asyncio.wait({arrival, aborted}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if arrival.done():
                return arrival.result()
        finally:
            arrival.cancel()
            aborted.cancel()
        if aborted.done():
            raise Stopping("the service is shutting down and does not wait for the rest of the body")
        expected = "" if self.content_length is None else f" of {self.content_length}"
        raise SlowBody(f"expected the body within {timeout_s:g} s, got {self._size} bytes{expected}")

    async def drain(self) -> None:
        """Read and discard the rest, up to `MAX_DRAIN_BYTES` and for `DRAIN_TIMEOUT_S`; little of one that has more."""
        left = MAX_DRAIN_BYTES if (self.content_length or 0) <= MAX_DRAIN_BYTES else LARGE_BODY_BYTES

        def discard(chunk: bytes) -> None:
            nonlocal left
            left -= len(chunk)
            if left < 0:
                raise ClientDisconnected

        with contextlib.suppress(asyncio.TimeoutError, ClientDisconnected):
            await asyncio.wait_for(self._read_in_turns(discard), DRAIN_TIMEOUT_S)

    def release(self) -> None:
        """Free the body and stop counting its bytes."""
        self._admission.count_body_bytes(-self._size, self._caller)
        self._size = 0
        self._data = io.BytesIO()

    async def _read_all(self, max_bytes: int) -> bytes:
        if self.is_large:
            await self._read_in_turns(lambda chunk: self._append(chunk, max_bytes))
        else:
            while not self.ended:
                self._append(await self._next_chunk(), max_bytes)
        data, self._data = self._data, io.BytesIO()
        return data.getvalue()  # no copy

    def _append(self, chunk: bytes, max_bytes: int) -> None:
        self._admission.count_body_bytes(len(chunk), self._caller)
        self._size += len(chunk)
        if self._size > max_bytes:
            raise BodyTooLarge.of(max_bytes)
        self._data.write(chunk)

    async def _read_in_turns(self, take: Callable[[bytes], None]) -> None:
        """Read to the end, one turn after another."""
        loop = asyncio.get_running_loop()
        while not self.ended:
            async with self._large_bodies.slot(self._caller):
                turn_ends, chunks_before = loop.time() + TURN_S, -1
                reading = asyncio.ensure_future(self._read_until(turn_ends, take))
                try:
                    while not reading.done() and self._chunks > chunks_before:  # a slow caller loses the turn
                        chunks_before = self._chunks
                        await asyncio.wait({reading}, timeout=IDLE_S)
                    if reading.done():
                        reading.result()
                finally:
                    reading.cancel()

    async def _read_until(self, turn_ends: float, take: Callable[[bytes], None]) -> None:
        clock = asyncio.get_running_loop().time
        due = clock()
        while not self.ended and clock() < turn_ends:
            chunk = await self._next_chunk()
            take(chunk)
            self._chunks += 1
            due += len(chunk) / SHARED_BYTES_PER_S
            if due - clock() > MAX_LEAD_S and self._large_bodies.has_others(self._caller):
                await asyncio.sleep(due - clock())

    async def _next_chunk(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        self.ended = not message.get("more_body", False)
        return bytes(message.get("body", b""))
