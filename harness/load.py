"""Load on a server of this machine: callers in a loop, or requests on schedule, and the replies to
them.

with crowd(server.port, lambda: request, callers=8) as replies:
    time.sleep(10)
print(replies.reasons())
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import uvloop

TIMEOUT_S = 90
NOT_MODIFIED = 304
"""Status of answers without a body and its length."""
RETRY_S = 0.05
"""Pause of a caller if the server is away or busy."""
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Request:
    """Request that is ready to send: a GET, or a POST with this body."""

    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    renew: Callable[[bytes], bytes] | None = None
    """Function that varies the body each time."""

    def content(self) -> bytes | None:
        """Return the body of the next request."""
        return self.renew(self.body) if self.renew and self.body else self.body

    def data(self) -> bytes:
        """Return the next request as it is sent."""
        body = self.content()
        headers = {
            "Host": "x",
            **self.headers,
            **({} if body is None else {"Content-Length": len(body)}),
        }
        lines = [f"{'GET' if body is None else 'POST'} {self.path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


def json_request(
    fields: Mapping[str, Any],
    path: str = "/mobile_sam",
    headers: Mapping[str, str] = MappingProxyType({}),
    renew: Callable[[bytes], bytes] | None = None,
) -> Request:
    """Return a JSON request."""
    return Request(path, json.dumps(fields).encode(), {**JSON, **headers}, renew)


@dataclass(frozen=True)
class Reply:
    """Answer to one request, or why there is none."""

    began: float
    """Start on the monotonic clock."""
    seconds: float
    status: int
    """HTTP status; 0 if no answer came."""
    reason: str
    """`ok`, a problem's type, or how the connection failed:

    - `refused`: no server is listening;
    - `closed`: the server closed an idle keep-alive connection, as HTTP allows; callers retry;
    - `lost`: a new connection ended without an answer.
    """

    @property
    def ok(self) -> bool:
        """Return whether the request succeeded."""
        return self.status == 200


@dataclass
class Replies:
    """Answers to many requests."""

    all: list[Reply] = field(default_factory=list)

    def reasons(self) -> Counter[str]:
        """Return the number of outcomes by reason."""
        return Counter(outcome.reason for outcome in self.all)

    def all_ok(self) -> list[Reply]:
        """Return all outcomes; raise RuntimeError if a request failed."""
        if failed := self.reasons().keys() - {"ok"}:
            raise RuntimeError(f"requests failed: {', '.join(failed)}")
        return self.all

    def before(self, moment: float) -> Replies:
        """Return the outcomes of requests that began earlier."""
        return Replies([outcome for outcome in self.all if outcome.began < moment])

    def after(self, moment: float) -> Replies:
        """Return the outcomes of requests that began later."""
        return Replies([outcome for outcome in self.all if outcome.began > moment])

    def answered(self) -> list[Reply]:
        """Return the outcomes of successful requests."""
        return [outcome for outcome in self.all if outcome.ok]


class Connection:
    """Keep-alive connection, opened when it is needed; `address` is its source."""

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        self._port, self._address = port, address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: Request) -> Reply:
        """Send a request and wait for the answer."""
        was_open, began = self._streams is not None, time.monotonic()
        status, reason = 0, "refused"
        try:
            if not self._streams:
                self._streams = await asyncio.open_connection(
                    "127.0.0.1", self._port, local_addr=(self._address, 0)
                )
            reason = "lost"
            status, answer = await asyncio.wait_for(
                self._exchange(*self._streams, request.data()), TIMEOUT_S
            )
            reason = "ok" if status == 200 else slug(answer)
        except (OSError, EOFError, ValueError, asyncio.TimeoutError) as error:
            self.close()
            no_answer = isinstance(error, asyncio.IncompleteReadError) and not error.partial
            if was_open and (no_answer or isinstance(error, ConnectionError)):
                reason = "closed"
        return Reply(began, time.monotonic() - began, status, reason)

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes
    ) -> tuple[int, bytes]:
        writer.write(data)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        status = int(head.split()[1])
        length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
        answer = b"" if status == NOT_MODIFIED else await reader.readexactly(int(length))
        if b"connection: close" in head:
            self.close()
        return status, answer

    def close(self) -> None:
        """Close the connection."""
        if self._streams:
            self._streams[1].close()
            self._streams = None


def slug(answer: bytes) -> str:
    """Return the last part of a problem's type, or the beginning of an answer that is no
    problem.
    """
    try:
        return str(json.loads(answer)["type"]).rpartition(":")[2]
    except (ValueError, KeyError, TypeError):
        return f"no problem: {answer[:50]!r}"


async def _call(
    connection: Connection, requests: Iterable[Request], replies: Replies, pause: float, keep: bool
) -> None:
    for request in requests:
        outcome = await connection.ask(request)
        replies.all.append(outcome)
        if not keep:
            connection.close()
        await asyncio.sleep(
            max(pause - outcome.seconds, RETRY_S if outcome.status in (0, 503) else 0)
        )
    connection.close()


def closed_loop(port: int, requests: Sequence[Request], callers: int = 1) -> Replies:
    """Send requests from callers, each of which sends the next one once it has its answer."""
    replies, left = Replies(), iter(requests)
    _run(_call(Connection(port), left, replies, 0.0, True) for _ in range(callers))
    return replies


def open_loop(port: int, requests: Sequence[Request], rate: float) -> Replies:
    """Send evenly spaced requests, `rate` per second, whether or not earlier ones are answered.

    A request that met a closed idle connection is sent again, as HTTP clients do.
    """
    replies, idle, began = Replies(), deque[Connection](), time.monotonic()

    async def ask(number: int, request: Request) -> None:
        await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
        connection = idle.pop() if idle else Connection(port)
        reply = await connection.ask(request)
        if reply.reason == "closed":
            reply = await connection.ask(request)
        replies.all.append(reply)
        idle.append(connection)
        if len(replies.all) == len(requests):
            for unused in idle:
                unused.close()

    _run(ask(number, request) for number, request in enumerate(requests))
    return replies


def client_process() -> ProcessPoolExecutor:
    """Return a process for load that must not slow down this one: `client.submit(closed_loop,
    port, requests, 8)`.
    """
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


@contextmanager
def crowd(
    port: int,
    source: Callable[[], Request],
    callers: int,
    *,
    pause: float = 0.0,
    keep: bool = True,
    address: str = "127.0.0.1",
) -> Iterator[Replies]:
    """Run concurrent callers until the context ends; all their requests have an outcome then.

    Args:
        port: port of a server on this machine.
        source: function that returns the next request.
        callers: number of callers.
        pause: minimum seconds between the starts of two requests of a caller.
        keep: reuse connections.
        address: source address, one of this machine's.
    """
    replies, stopped = Replies(), threading.Event()

    def requests() -> Iterator[Request]:
        while not stopped.is_set():
            yield source()

    left = requests()
    calls = (_call(Connection(port, address), left, replies, pause, keep) for _ in range(callers))
    thread = threading.Thread(target=_run, args=(calls,), daemon=True)
    thread.start()
    try:
        yield replies
    finally:
        stopped.set()
        thread.join(TIMEOUT_S)


def _run(coroutines: Iterable[Coroutine[Any, Any, None]]) -> None:
    async def all_of_them() -> None:
        await asyncio.gather(*coroutines)
        await asyncio.sleep(0)  # closed connections

    uvloop.run(all_of_them())  # takes little of the cores that the server has
