"""HTTP, waiting and blocking work behind one interface, for the blocking and the asyncio client.

The calls are coroutines over `Wire`. `BlockingWire` never suspends, so `run_blocking` can run them without an event
loop.
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

CHUNK_BYTES = 65_536
"""Bytes per write of a request body. The write timeout applies to each chunk, not to the whole upload."""
SEND_BUFFER_BYTES = 4 * 2**20
"""Bytes that the operating system may still have to send when the wait for the answer begins."""
MIN_UPLOAD_BYTES_PER_S = 128 * 2**10
"""Slowest upload allowed for in that wait: 1 Mbit/s."""


class Response(Protocol):
    """A response whose headers have arrived. Reading it to the end closes it."""

    status: int
    headers: Mapping[str, str]

    async def read(self) -> bytes:
        """Read the whole body."""

    async def chunk(self) -> bytes:
        """Read the next bytes of the body; empty at its end."""

    async def close(self) -> None:
        """Discard the rest of the body."""


class Wire(Protocol):
    """Access to the service. `send` raises `ServiceUnreachable`, `ServiceTimeout` or `NotThisService`."""

    async def send(self, method: str, path: str, body: bytes | None) -> Response:
        """Send a request with a JSON body and wait for the response headers."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""

    async def run(self, task: Callable[[], T]) -> T:
        """Run blocking work."""


def run_blocking(call: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends and return its result."""
    try:
        call.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    call.close()
    raise RuntimeError("a call over a blocking wire was suspended")


class BlockingWire:
    """`Wire` over an `httpx.Client`."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    async def send(self, method: str, path: str, body: bytes | None) -> Response:
        """Send a request and wait for the response headers."""
        content = None if body is None else _body_chunks(body)
        timeout = _timeout(self._http.timeout, body)
        request = self._http.build_request(method, path, content=content, headers=_headers(body), timeout=timeout)
        with _translated_errors(request):
            return _BlockingResponse(self._http.send(request, stream=True))

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    async def run(self, task: Callable[[], T]) -> T:
        """Run the task in this thread."""
        return task()


class _BlockingResponse:
    def __init__(self, response: httpx.Response) -> None:
        self.status, self.headers = response.status_code, _headers_of(response)
        self._response, self._chunks = response, response.iter_bytes()

    async def read(self) -> bytes:
        with _translated_errors(self._response.request):
            return self._response.read()

    async def chunk(self) -> bytes:
        with _translated_errors(self._response.request):
            return next(self._chunks, b"")

    async def close(self) -> None:
        self._response.close()


class AsyncWire:
    """`Wire` over an `httpx.AsyncClient`."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def send(self, method: str, path: str, body: bytes | None) -> Response:
        """Send a request and wait for the response headers."""
        content = None if body is None else _async_body_chunks(body)
        timeout = _timeout(self._http.timeout, body)
        request = self._http.build_request(method, path, content=content, headers=_headers(body), timeout=timeout)
        with _translated_errors(request):
            return _AsyncResponse(await self._http.send(request, stream=True))

    async def sleep(self, seconds: float) -> None:
        """Wait without blocking the event loop."""
        await asyncio.sleep(seconds)

    async def run(self, task: Callable[[], T]) -> T:
        """Run the task in a worker thread."""
        return await asyncio.to_thread(task)


class _AsyncResponse:
    def __init__(self, response: httpx.Response) -> None:
        self.status, self.headers = response.status_code, _headers_of(response)
        self._response, self._chunks = response, response.aiter_bytes()

    async def read(self) -> bytes:
        with _translated_errors(self._response.request):
            return await self._response.aread()

    async def chunk(self) -> bytes:
        with _translated_errors(self._response.request):
            return await anext(self._chunks, b"")

    async def close(self) -> None:
        await self._response.aclose()


def _headers_of(response: httpx.Response) -> Mapping[str, str]:
    """Return the headers, case-insensitive."""
    headers: Mapping[str, str] = response.headers
    return headers


def _headers(body: bytes | None) -> dict[str, str]:
    return {} if body is None else {"Content-Type": "application/json", "Content-Length": str(len(body))}


def _timeout(default: httpx.Timeout, body: bytes | None) -> httpx.Timeout:
    """Return the timeouts of a request, with more time for the answer while buffered bytes are still being sent."""
    extra_s = min(len(body or b""), SEND_BUFFER_BYTES) // MIN_UPLOAD_BYTES_PER_S
    read = None if default.read is None else default.read + extra_s
    return httpx.Timeout(connect=default.connect, read=read, write=default.write, pool=default.pool)


def _body_chunks(body: bytes) -> Iterator[bytes]:
    view = memoryview(body)
    for start in range(0, len(body), CHUNK_BYTES):
        yield bytes(view[start : start + CHUNK_BYTES])


async def _async_body_chunks(body: bytes) -> AsyncIterator[bytes]:
    for chunk in _body_chunks(body):
        yield chunk


@contextlib.contextmanager
def _translated_errors(request: httpx.Request) -> Iterator[None]:
    """Translate httpx errors into `MobileSamError`s."""
    url = str(request.url)
    try:
        yield
    except httpx.TimeoutException as error:
        seconds = request.extensions["timeout"]["write" if isinstance(error, httpx.WriteTimeout) else "read"]
        raise ServiceTimeout(f"no answer from {url} within {seconds:g} s; increase `timeout` to wait longer") from error
    except (httpx.RemoteProtocolError, httpx.DecodingError) as error:
        # httpx has no separate class for a connection closed too early.
        if "disconnected" in str(error) or "closed connection" in str(error):
            raise ServiceUnreachable(_connection_lost(url, error)) from error
        raise NotThisService(f"{url} is not a MobileSAM service: {one_line(str(error))}") from error
    except httpx.ConnectError as error:
        reason = one_line(str(error)) or type(error).__name__
        origin = str(request.url.copy_with(raw_path=b"/")).rstrip("/")
        raise ServiceUnreachable(
            f"cannot connect to {origin} ({reason}); start the service with `make serve`"
        ) from error
    except httpx.TransportError as error:
        raise ServiceUnreachable(_connection_lost(url, error)) from error


def _connection_lost(url: str, error: Exception) -> str:
    return f"the connection to {url} was lost ({one_line(str(error)) or type(error).__name__})"
