"""HTTP, waiting and blocking work, for the blocking and the asyncio client.

The calls are coroutines over a `Wire`. With a blocking client they never suspend, so `run_blocking` can run them
without an event loop.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, ParamSpec, TypeVar

import httpx

from mobile_sam_client._errors import NotThisService, ServiceTimeout, ServiceUnreachable, one_line

P = ParamSpec("P")
T = TypeVar("T")

CHUNK_BYTES = 65_536
"""Bytes per write of a request body. The write timeout applies to each chunk, not to the whole upload."""
SEND_BUFFER_BYTES = 4 * 2**20
"""Bytes that the operating system may still have to send when the wait for the answer begins."""
MIN_UPLOAD_BYTES_PER_S = 128 * 2**10
"""Slowest upload allowed for in that wait: 1 Mbit/s."""


def run_blocking(call: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends and return its result."""
    try:
        call.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    call.close()
    raise RuntimeError("a call over a blocking wire was suspended")


class Wire:
    """Access to the service with either client of httpx. With a blocking one, no method suspends."""

    def __init__(self, http: httpx.Client | httpx.AsyncClient) -> None:
        self._http = http
        self._blocks = isinstance(http, httpx.Client)

    async def send(self, method: str, path: str, body: bytes | None, image_id: str | None) -> httpx.Response:
        """Send a request with a JSON body, about an image if there is its id, and wait for the response headers."""
        headers, timeout = {"X-Image-Id": image_id} if image_id else {}, self._http.timeout.as_dict()
        if body is not None:
            headers["Content-Type"] = "application/json"
            # More time for the answer, while buffered bytes are still being sent.
            timeout["read"] = (timeout["read"] or 0) + min(len(body), SEND_BUFFER_BYTES) // MIN_UPLOAD_BYTES_PER_S
        request = self._http.build_request(
            method, path, content=body, headers=headers, timeout=httpx.Timeout(**timeout)
        )
        if body is not None:
            request.stream = ChunkedBody(body)
        with _translated_errors(request):
            if isinstance(self._http, httpx.Client):
                return self._http.send(request, stream=True)
            return await self._http.send(request, stream=True)

    async def read(self, response: httpx.Response) -> bytes:
        with _translated_errors(response.request):
            return response.read() if self._blocks else await response.aread()

    async def chunks(self, response: httpx.Response) -> AsyncIterator[bytes]:
        with _translated_errors(response.request):
            if self._blocks:
                for chunk in response.iter_bytes():
                    yield chunk
            else:
                async for chunk in response.aiter_bytes():
                    yield chunk

    async def close(self, response: httpx.Response) -> None:
        """Discard the rest of the body."""
        response.close() if self._blocks else await response.aclose()

    async def sleep(self, seconds: float) -> None:
        """Wait, without blocking the event loop."""
        time.sleep(seconds) if self._blocks else await asyncio.sleep(seconds)

    async def run(self, task: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Run blocking work: in this thread, or in a worker thread where that would block the event loop."""
        return task(*arguments, **named) if self._blocks else await asyncio.to_thread(task, *arguments, **named)


class ChunkedBody(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A request body in chunks, for either client of httpx."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        view = memoryview(self._body)
        return (bytes(view[start : start + CHUNK_BYTES]) for start in range(0, len(view), CHUNK_BYTES))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self:
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
    except (httpx.TransportError, httpx.DecodingError) as error:
        reason = one_line(str(error)) or "without a reason"
        if isinstance(error, httpx.ConnectError):
            origin = str(request.url.copy_with(raw_path=b"/")).rstrip("/")
            remedy = "start the service with `make serve`, or set its address in MOBILE_SAM_URL"
            raise ServiceUnreachable(f"cannot connect to {origin} ({reason}); {remedy}") from error
        # httpx has no separate class for a connection closed too early.
        closed = "disconnected" in reason or "closed connection" in reason
        if isinstance(error, (httpx.RemoteProtocolError, httpx.DecodingError)) and not closed:
            raise NotThisService(f"{url} is not a MobileSAM service: {reason}") from error
        raise ServiceUnreachable(f"the connection to {url} was lost ({reason})") from error
