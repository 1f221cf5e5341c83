"""What the calls need of the world outside, for blocking callers and for those with an event loop.

The calls are written once, as coroutines over `Wire`. `BlockingWire` never suspends them, so that `run_blocking` can
run them to their end without an event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from typing import Any, Protocol, TypeVar

import httpx

from mobile_sam_client._errors import NotThisService, ServiceTimeout, ServiceUnreachable, one_line

T = TypeVar("T")

PIECE = 65_536
"""Bytes of a body that are handed on at once. The time limit is for each: a large image on a slow line takes longer."""
BUFFERED = 4 * 2**20
"""Bytes at the end of a body that the system may still have to send when the wait for the answer begins."""
SLOWEST_LINE = 128 * 2**10
"""Bytes a second for which that wait makes allowance: 1 Mbit/s."""


class Answer(Protocol):
    """An answer that has begun. It is closed when it has been read, or else by `close`."""

    status: int
    headers: Mapping[str, str]

    async def read(self) -> bytes:
        """All of the body."""

    async def chunk(self) -> bytes:
        """The next bytes of the body; none at its end."""

    async def close(self) -> None:
        """Want no more of it."""


class Wire(Protocol):
    """Each method that asks the service raises `ServiceUnreachable`, `ServiceTimeout` or `NotThisService`."""

    async def send(self, method: str, path: str, body: bytes | None) -> Answer:
        """Send a request, and wait until the answer begins. The body is JSON."""

    async def wait(self, seconds: float) -> None:
        """Do nothing for a while."""

    async def work(self, task: Callable[[], T]) -> T:
        """Do what takes the processor or a disk a while."""


def run_blocking(call: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends."""
    try:
        call.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    call.close()
    raise RuntimeError("a call over a blocking wire has suspended")


class BlockingWire:
    """Over an `httpx.Client`."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    async def send(self, method: str, path: str, body: bytes | None) -> Answer:
        """Send a request, and wait until the answer begins."""
        content = None if body is None else _pieces(body)
        timeout = _timeout(self._http.timeout, body)
        request = self._http.build_request(method, path, content=content, headers=_headers(body), timeout=timeout)
        with _told_plainly(request):
            return _BlockingAnswer(self._http.send(request, stream=True))

    async def wait(self, seconds: float) -> None:
        """Do nothing for a while."""
        time.sleep(seconds)

    async def work(self, task: Callable[[], T]) -> T:
        """Do it here."""
        return task()


class _BlockingAnswer:
    def __init__(self, response: httpx.Response) -> None:
        self.status, self.headers = response.status_code, _by_name(response)
        self._response, self._chunks = response, response.iter_bytes()

    async def read(self) -> bytes:
        with _told_plainly(self._response.request):
            return self._response.read()

    async def chunk(self) -> bytes:
        with _told_plainly(self._response.request):
            return next(self._chunks, b"")

    async def close(self) -> None:
        self._response.close()


class AsyncWire:
    """Over an `httpx.AsyncClient`."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def send(self, method: str, path: str, body: bytes | None) -> Answer:
        """Send a request, and wait until the answer begins."""
        content = None if body is None else _async_pieces(body)
        timeout = _timeout(self._http.timeout, body)
        request = self._http.build_request(method, path, content=content, headers=_headers(body), timeout=timeout)
        with _told_plainly(request):
            return _AsyncAnswer(await self._http.send(request, stream=True))

    async def wait(self, seconds: float) -> None:
        """Do nothing for a while, and let others work."""
        await asyncio.sleep(seconds)

    async def work(self, task: Callable[[], T]) -> T:
        """Do it beside the event loop."""
        return await asyncio.to_thread(task)


class _AsyncAnswer:
    def __init__(self, response: httpx.Response) -> None:
        self.status, self.headers = response.status_code, _by_name(response)
        self._response, self._chunks = response, response.aiter_bytes()

    async def read(self) -> bytes:
        with _told_plainly(self._response.request):
            return await self._response.aread()

    async def chunk(self) -> bytes:
        with _told_plainly(self._response.request):
            return await anext(self._chunks, b"")

    async def close(self) -> None:
        await self._response.aclose()


def _by_name(response: httpx.Response) -> Mapping[str, str]:
    """The headers of an answer, by names in any case."""
    headers: Mapping[str, str] = response.headers
    return headers


def _headers(body: bytes | None) -> dict[str, str]:
    return {} if body is None else {"Content-Type": "application/json", "Content-Length": str(len(body))}


def _timeout(usual: httpx.Timeout, body: bytes | None) -> httpx.Timeout:
    """The time limits of a request: a second more for the answer per 128 KiB that may not have left by then."""
    late = min(len(body or b""), BUFFERED) // SLOWEST_LINE
    read = None if usual.read is None else usual.read + late
    return httpx.Timeout(connect=usual.connect, read=read, write=usual.write, pool=usual.pool)


def _pieces(body: bytes) -> Iterator[bytes]:
    view = memoryview(body)
    for start in range(0, len(body), PIECE):
        yield bytes(view[start : start + PIECE])


async def _async_pieces(body: bytes) -> AsyncIterator[bytes]:
    for piece in _pieces(body):
        yield piece


@contextlib.contextmanager
def _told_plainly(request: httpx.Request) -> Iterator[None]:
    """Within it, httpx's errors become this package's."""
    url = str(request.url)
    try:
        yield
    except httpx.TimeoutException as error:
        seconds = request.extensions["timeout"]["write" if isinstance(error, httpx.WriteTimeout) else "read"]
        raise ServiceTimeout(f"no answer from {url} within {seconds:g} s; `timeout` is how long to wait") from error
    except (httpx.RemoteProtocolError, httpx.DecodingError) as error:
        # Of a connection that ends too early there is no class of its own.
        if "disconnected" in str(error) or "closed connection" in str(error):
            raise ServiceUnreachable(_lost(url, error)) from error
        raise NotThisService(f"{url} is not this service: {one_line(str(error))}") from error
    except httpx.ConnectError as error:
        reason = one_line(str(error)) or type(error).__name__
        origin = str(request.url.copy_with(raw_path=b"/")).rstrip("/")
        raise ServiceUnreachable(
            f"nothing answers at {origin} ({reason}); start the service with `make serve`"
        ) from error
    except httpx.TransportError as error:
        raise ServiceUnreachable(_lost(url, error)) from error


def _lost(url: str, error: Exception) -> str:
    return f"the connection to {url} was lost ({one_line(str(error)) or type(error).__name__})"
