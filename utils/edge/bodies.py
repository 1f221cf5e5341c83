"""Request bodies, capped, within a time limit and in bounded memory, and the application that
gets them.
"""

import asyncio
import contextlib
import io
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from utils.errors import BodyTooLarge, InferenceTimeout, SlowBody
from utils.inference.shares import Holding, Turns

MAX_DRAIN_BYTES, DRAIN_TIMEOUT_S = 48 * 2**20, 2.0
"""Limits for discarding a refused body before the connection is closed. Most clients read the
answer only after they have sent everything, and lose it if the connection is closed earlier."""

LARGE_BODY_BYTES, TURN_S, IDLE_S = 100_000, 0.05, 0.005
"""Bodies above this size, or of unknown length, are read in turns, because they take much of the
event loop's time. A turn ends early if nothing arrives."""


class ClientDisconnected(Exception):
    """The caller disconnected before the request was complete or answered."""


class Body:
    """A request body. Its bytes count towards the worker's limit until `release`."""

    def __init__(self, scope: Scope, receive: Receive, large_bodies: Turns, address: str) -> None:
        """Take the body of a request. A large one is read in turns with others, which are the
        caller's.
        """
        self._receive, self._large_bodies, self._address = receive, large_bodies, address
        self._holding: Holding | None = None
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"")
        self.content_length = int(length) if length.isdigit() else None
        """Announced size in bytes; None without a Content-Length."""
        self.chunked = b"transfer-encoding" in headers
        """True if the body has no known length."""
        self.ended = False
        """True once the whole body has been read."""
        self._size = 0
        # Not a list, where each single byte takes 40. Not a local variable, which the traceback of
        # an error keeps.
        self._data = io.BytesIO()

    async def read(self, max_bytes: int, timeout_s: float, holding: Holding) -> bytes:
        """Return the whole body.

        Args:
            max_bytes: size up to which it is accepted.
            timeout_s: time for all of it.
            holding: grows by the bytes that arrive; closed by `release`.

        Raises:
            BodyTooLarge: the body or its Content-Length exceeds `max_bytes`.
            SlowBody: the body did not arrive within `timeout_s`.
            Overloaded: there is no room for it.
            ClientDisconnected: the caller disconnected.
        """
        if self.content_length is not None and self.content_length > max_bytes:
            raise BodyTooLarge(max_bytes, self.content_length)
        self._holding = holding
        try:
            await asyncio.wait_for(
                self._read_all(lambda chunk: self._append(chunk, max_bytes)), timeout_s
            )
        except asyncio.TimeoutError:
            expected = "" if self.content_length is None else f" of {self.content_length}"
            raise SlowBody(
                f"expected the body within {timeout_s:g} s, got {self._size} bytes{expected}"
            ) from None
        data, self._data = self._data, io.BytesIO()
        return data.getvalue()  # no copy

    async def drain(self) -> None:
        """Read and discard the rest, up to `MAX_DRAIN_BYTES` and for `DRAIN_TIMEOUT_S`; little
        of one that has more.
        """
        left = (
            MAX_DRAIN_BYTES if (self.content_length or 0) <= MAX_DRAIN_BYTES else LARGE_BODY_BYTES
        )

        def discard(chunk: bytes) -> None:
            nonlocal left
            left -= len(chunk)
            if left < 0:
                raise ClientDisconnected

        with contextlib.suppress(asyncio.TimeoutError, ClientDisconnected):
            await asyncio.wait_for(self._read_all(discard), DRAIN_TIMEOUT_S)

    def release(self) -> None:
        """Free the body and stop counting its bytes."""
        if self._holding:
            self._holding.close()
        self._data = io.BytesIO()

    def _append(self, chunk: bytes, max_bytes: int) -> None:
        assert self._holding
        self._holding.grow(len(chunk))
        self._size += len(chunk)
        if self._size > max_bytes:
            raise BodyTooLarge(max_bytes)
        self._data.write(chunk)

    async def _read_all(self, take: Callable[[bytes], None]) -> None:
        """Read to the end; a large body, or one of unknown length, in turns."""
        large = self.content_length is None or self.content_length > LARGE_BODY_BYTES
        while not self.ended:
            async with (
                self._large_bodies.place(self._address) if large else contextlib.nullcontext()
            ):
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._read_message(take), IDLE_S if large else None)
                    await asyncio.wait_for(self._read_rest(take), TURN_S if large else None)

    async def _read_rest(self, take: Callable[[bytes], None]) -> None:
        while not self.ended:
            await self._read_message(take)

    async def _read_message(self, take: Callable[[bytes], None]) -> None:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        self.ended = not message.get("more_body", False)
        take(message.get("body", b""))


async def run_application(
    app: ASGIApp, scope: Scope, body: bytes, receive: Receive, send: Send, *, timeout_s: float
) -> None:
    """Run the application, and cancel its work once the answer is no longer needed.

    Args:
        app, scope, body: the application, the request and its body.
        receive, send: ASGI callables of the caller; the first one tells when it disconnects.
        timeout_s: time for the answer to start; the rest of the answer has no time limit.

    Raises:
        ClientDisconnected: the caller disconnected before the answer was complete.
        InferenceTimeout: the answer did not start in time.
    """
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    del body  # the application frees it once it has read it
    started = complete = False

    async def wait_disconnected() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def replay() -> Message:
        if pending:
            return pending.pop()
        await asyncio.wait([disconnected])
        return {"type": "http.disconnect"}

    async def watched(message: Message) -> None:
        nonlocal started, complete
        started = True
        complete = complete or (
            message["type"] == "http.response.body" and not message.get("more_body", False)
        )
        await send(message)

    disconnected = asyncio.ensure_future(wait_disconnected())
    work = asyncio.ensure_future(app(scope, replay, watched))
    ends = {work, disconnected}
    try:
        done, _ = await asyncio.wait(ends, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not done and started:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if work in done or complete:
            await work
        elif done or started:
            raise ClientDisconnected
        else:
            raise InferenceTimeout(f"no answer within {timeout_s:g} s")
    finally:
        for task in ends:
            task.cancel()
        await asyncio.wait(ends)
