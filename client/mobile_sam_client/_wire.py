"""HTTP, waiting and blocking work, in one form for the blocking and the asyncio client.

The calls are coroutines over a `Wire`. With a blocking client they never suspend, so `run_blocking`
can run them without an event loop.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, ParamSpec, TypeVar

import httpx

from mobile_sam_client._errors import NotThisService, ServiceTimeout, ServiceUnreachable, one_line

P = ParamSpec("P")
T = TypeVar("T")

CHUNK_BYTES = 65_536
"""Bytes per write of a request body. The write timeout applies to each chunk, not to the whole
upload."""
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
    """Access to the service with either client of httpx.

    With a blocking one, no method suspends.
    """

    def __init__(self, http: httpx.Client | httpx.AsyncClient) -> None:
        self._http = http
        self._blocks = isinstance(http, httpx.Client)

    async def send(
        self, method: str, path: str, body: bytes | None, image_id: str | None
    ) -> httpx.Response:
        """Send a request and wait for the response headers.

        Args:
            method: HTTP method.
            path: URL path.
            body: JSON, or None.
            image_id: id of the image that the request is about, or None.
        """
        headers: dict[str, str] = {}
        if image_id:
            headers["X-Image-Id"] = image_id
        timeout = self._http.timeout.as_dict()
        if body is not None:
            headers["Content-Type"] = "application/json"
            # More time for the answer, while buffered bytes are still being sent.
            upload_s = min(len(body), SEND_BUFFER_BYTES) // MIN_UPLOAD_BYTES_PER_S
            timeout["read"] = (timeout["read"] or 0) + upload_s
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
        if self._blocks:
            response.close()
        else:
            await response.aclose()

    async def sleep(self, seconds: float) -> None:
        """Wait, without blocking the event loop."""
        if self._blocks:
            time.sleep(seconds)
        else:
            await asyncio.sleep(seconds)

    async def run(self, task: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Run blocking work: in a worker thread where it would block the event loop."""
        if self._blocks:
            return task(*arguments, **named)
        return await asyncio.to_thread(task, *arguments, **named)


class ChunkedBody(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A request body in chunks, for either client of httpx."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        view = memoryview(self._body)
        for start in range(0, len(view), CHUNK_BYTES):
            yield bytes(view[start : start + CHUNK_BYTES])

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self:
            yield chunk


async def lines_of(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Split chunks into non-empty lines. Only `\\n` ends a line."""
    partial: list[bytes] = []  # of the line that has not ended yet
    async for chunk in chunks:
        first, *others = chunk.split(b"\n")
        partial.append(first)
        if others:
            for line in (b"".join(partial), *others[:-1]):
                if line.strip():
                    yield line
            partial = others[-1:]


@contextlib.contextmanager
def _translated_errors(request: httpx.Request) -> Iterator[None]:
    """Translate httpx errors into `MobileSamError`s."""
    url = str(request.url)
    try:
        yield
    except httpx.TimeoutException as error:
        limit = "write" if isinstance(error, httpx.WriteTimeout) else "read"
        seconds = request.extensions["timeout"][limit]
        hint = "increase `timeout` to wait longer"
        raise ServiceTimeout(f"no answer from {url} within {seconds:g} s; {hint}") from error
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
