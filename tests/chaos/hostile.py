"""Hostile callers over many connections, in a separate process so that they do not slow down the
control client.

`flood_requests`, `leave_unread`, `read_slowly`, `hold_uploads`, `send_endless_heads` and
`hold_half_open` are coroutines for one connection, repeated until the time is over. Their results
are counted: the status of the answer, or how the connection ended.
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
"""Coroutine function of the port, the number of the connection, its deadline, and further
arguments."""
OPEN = "still open"
"""Result of an attempt that the end of the attack interrupts."""
NICENESS = 10
"""Priority of attackers, which in reality have their own machines."""
CHUNK_BYTES = 256 * 1024
HEAD = "POST {} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
SLOW_READ_BYTES = 1000
RETRY_S = 0.05
LOCAL = "127.0.0.1"


@contextmanager
def attacking(
    attempt: Attempt, port: int, connections: int, seconds: float, *more: Any
) -> Iterator[Future[Counter[str]]]:
    """Repeat an attempt over many connections; the context ends after them."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as pool:
        yield pool.submit(_attack, attempt, port, connections, seconds, more)


def answered(counts: Counter[str]) -> int:
    """Return the number of attempts that had an answer or held a connection until the end."""
    return sum(count for result, count in counts.items() if result[:1].isdigit() or result == OPEN)


def _attack(
    attempt: Attempt, port: int, connections: int, seconds: float, more: Sequence[Any]
) -> Counter[str]:
    os.nice(NICENESS)
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    counts: Counter[str] = Counter()
    over = time.monotonic() + seconds

    async def repeat(number: int) -> None:
        while time.monotonic() < over:
            try:
                result = await asyncio.wait_for(
                    attempt(port, number, over, *more), over + 1 - time.monotonic()
                )
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


async def flood_requests(
    port: int,
    number: int,
    over: float,
    requests: Sequence[Request],
    addresses: Sequence[str] = (LOCAL,),
) -> str:
    """Send one of the requests, from one of the addresses, and read the answer."""
    async with _connected(port, addresses[number % len(addresses)]) as (writer, status):
        await _send(writer, status, requests[number % len(requests)].data())
        return await status


async def hold_uploads(
    port: int, number: int, over: float, size: int, addresses: Sequence[str]
) -> str:
    """Send a body of so many bytes without its last one, from one of the addresses, until the
    server hangs up.
    """
    async with _connected(port, addresses[number % len(addresses)]) as (writer, status):
        writer.write(HEAD.format("/mobile_sam").encode() + b"Content-Length: %d\r\n\r\n" % size)
        await _send(writer, status, bytes(size - 1))
        return await status


async def leave_unread(port: int, number: int, over: float, requests: Sequence[Request]) -> str:
    """Send one of the requests and do not read the answer, or only 1 kB per second, until the
    server hangs up.
    """
    return await _read_little(
        port, over, requests[number // 2 % len(requests)], LOCAL, number % 2 * SLOW_READ_BYTES
    )


async def read_slowly(
    port: int,
    number: int,
    over: float,
    requests: Sequence[Request],
    addresses: Sequence[str],
    *,
    bytes_per_s: int,
) -> str:
    """Send one of the requests, from one of the addresses, and read that much until the server
    hangs up.
    """
    request, address = requests[number % len(requests)], addresses[number % len(addresses)]
    return await _read_little(port, over, request, address, bytes_per_s)


async def _read_little(
    port: int, over: float, request: Request, address: str, bytes_per_s: int
) -> str:
    """Send a request and read its answer at this rate; 0: not at all."""
    loop, (host, family) = asyncio.get_running_loop(), _host(address)
    with socket.socket(family) as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        own.setblocking(False)
        own.bind((address, 0))
        await loop.sock_connect(own, (host, port))
        await loop.sock_sendall(own, request.data())
        status = (await loop.sock_recv(own, 12))[9:12].decode("latin-1")
        while status == "200" and time.monotonic() < over:
            await asyncio.sleep(1)
            if bytes_per_s and not await loop.sock_recv(own, bytes_per_s):
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
    starts = (
        b"",
        b"POST /mobile",
        HEAD.format("/mobile_sam").encode(),
        b"GET /readyz HTTP/1.1\r\nHo",
    )
    async with _connected(port) as (writer, status):
        writer.write(starts[number % len(starts)])
        return await status


def _host(address: str) -> tuple[str, socket.AddressFamily]:
    """Return this machine's own address, and the family, for connections from an address."""
    return ("::1", socket.AF_INET6) if ":" in address else (LOCAL, socket.AF_INET)


async def _send(writer: asyncio.StreamWriter, status: asyncio.Task[str], data: bytes) -> None:
    """Send data, or less if it is refused before all of it is sent."""
    for start in range(0, len(data), CHUNK_BYTES):
        writer.write(data[start : start + CHUNK_BYTES])
        await writer.drain()
        if status.done():
            return


@asynccontextmanager
async def _connected(
    port: int, address: str = LOCAL
) -> AsyncIterator[tuple[asyncio.StreamWriter, asyncio.Task[str]]]:
    """Connect; yield the writer and a task that reads the answer, and abort the connection at
    the end.
    """
    reader, writer = await asyncio.open_connection(_host(address)[0], port, local_addr=(address, 0))
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
