"""Hostile callers over many connections, in a separate process so that they do not slow down the innocent caller.

`flood_requests`, `leave_unread`, `send_endless_heads` and `hold_half_open` are coroutines for one connection, repeated
until the time is over. Their results are counted: the status of the answer, or how the connection ended.
"""

import asyncio
import multiprocessing
import os
import random
import resource
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from harness.load import Request

Attempt = Callable[..., Awaitable[str]]
"""Coroutine function of the port, the number of the connection, its deadline, and further arguments."""
OPEN = "still open"
"""Result of an attempt that the end of the attack interrupts."""
NICENESS = 10
"""Priority of attackers, which in reality have their own machines."""
CHUNK_BYTES = 256 * 1024
HEAD = "POST {} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
SLOW_READ_BYTES = 1000
RETRY_S = 0.05


@contextmanager
def attacking(
    attempt: Attempt, port: int, connections: int, seconds: float, *more: Any
) -> Iterator[Future[Counter[str]]]:
    """Repeat an attempt over many connections; the context ends after them."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as pool:
        yield pool.submit(_attack, attempt, port, connections, seconds, more)


def _attack(attempt: Attempt, port: int, connections: int, seconds: float, more: Sequence[Any]) -> Counter[str]:
    os.nice(NICENESS)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    counts: Counter[str] = Counter()
    over = time.monotonic() + seconds

    async def repeat(number: int) -> None:
        while time.monotonic() < over:
            try:
                result = await asyncio.wait_for(attempt(port, number, over, *more), over + 1 - time.monotonic())
            except asyncio.TimeoutError:
                result = OPEN
            except (OSError, EOFError) as error:
                result = type(error).__name__
            counts[result] += 1
            if not result.startswith("2"):
                await asyncio.sleep(RETRY_S)

    async def all_of_them() -> None:
        await asyncio.gather(*(repeat(number) for number in range(connections)))

    asyncio.run(all_of_them())
    return counts


async def flood_requests(port: int, number: int, over: float, requests: Sequence[Request]) -> str:
    """Send one of the requests and read the answer."""
    async with _connected(port) as (writer, status):
        data = requests[number % len(requests)].data()
        for start in range(0, len(data), CHUNK_BYTES):
            writer.write(data[start : start + CHUNK_BYTES])
            await writer.drain()
            if status.done():  # refused before the whole body is sent
                break
        return await status


async def leave_unread(port: int, number: int, over: float, requests: Sequence[Request]) -> str:
    """Send one of the requests and do not read the answer, or only 1 kB per second, until the server hangs up."""
    own = socket.socket()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    own.setblocking(False)
    loop = asyncio.get_running_loop()
    with own:
        await loop.sock_connect(own, ("127.0.0.1", port))
        await loop.sock_sendall(own, requests[number // 2 % len(requests)].data())
        status = (await loop.sock_recv(own, 12))[9:12].decode("latin-1")
        while status == "200" and time.monotonic() < over:
            await asyncio.sleep(1)
            if number % 2 and not await loop.sock_recv(own, SLOW_READ_BYTES):
                return f"{status}, closed"
        return status


async def send_endless_heads(port: int, number: int, over: float) -> str:
    """Send an endless head, trailer or chunk extension; the kind depends on the connection."""
    draw = random.Random(number)
    start, part = ENDLESS[number % len(ENDLESS)]
    async with _connected(port) as (writer, status):
        writer.write(start)
        while time.monotonic() < over and not status.done():
            # Each name is new, in case the server keeps one value per name.
            writer.write(b"".join(part % draw.getrandbits(32) for _ in range(100)))
            await writer.drain()
        return await asyncio.wait_for(status, 5)


CHUNKED = HEAD.format("/embed").encode() + b"Transfer-Encoding: chunked\r\n\r\n"
ENDLESS = (
    (HEAD.format("/embed").encode(), b"X-%d: " + b"x" * 1000 + b"\r\n"),
    (HEAD.format("/embed").encode(), b"a%d:\r\n"),
    (HEAD.format("/embed").encode() + b"X-Long: ", b"%d" + b"x" * 1000),
    (b"GET /", b"%d" + b"x" * 1000),
    (CHUNKED + b"2\r\n{}\r\n0\r\n", b"X-%d: " + b"x" * 1000 + b"\r\n"),
    (CHUNKED + b"2\r\n{}\r\n0\r\n", b"a%d:\r\n"),
    (CHUNKED + b"2;", b"x%d=" + b"y" * 1000 + b";"),
    (CHUNKED, b"1;x=%d" + b"y" * 200 + b"\r\n \r\n"),
)
"""Start of each kind of request, and the part to repeat."""


async def hold_half_open(port: int, number: int, over: float) -> str:
    """Send half a request line or head and wait until the server hangs up."""
    starts = (b"", b"POST /mobile", HEAD.format("/mobile_sam").encode(), b"GET /readyz HTTP/1.1\r\nHo")
    async with _connected(port) as (writer, status):
        writer.write(starts[number % len(starts)])
        return await status


@asynccontextmanager
async def _connected(port: int) -> AsyncIterator[tuple[asyncio.StreamWriter, asyncio.Task[str]]]:
    """Connect; yield the writer and a task that reads the answer, and abort the connection at the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    status = asyncio.create_task(_status(reader))
    try:
        yield writer, status
    finally:
        status.cancel()
        writer.transport.abort()


async def _status(reader: asyncio.StreamReader) -> str:
    """Read an answer; return its status, or `closed` if there is none."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
    except (EOFError, ConnectionError):
        return "closed"
    length = int((head.partition(b"content-length:")[2].partition(b"\r\n")[0]) or b"0")
    while length > 0 and (data := await reader.read(min(length, CHUNK_BYTES))):
        length -= len(data)
    return head[9:12].decode("latin-1")
