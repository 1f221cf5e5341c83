"""Callers' connections to one API worker: uvicorn's HTTP protocol with bounds on heads, number and
stalls; who calls.

h11 parses HTTP here, whatever else is installed: it holds pipelined requests back, and refuses
heads, trailers and chunk extensions that do not end. What is not HTTP gets a 400 in plain text, and
is not read any further.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import resource
from functools import partial
from pathlib import Path
from typing import Any, cast

import h11
from starlette.types import Scope
from uvicorn import Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from orchestrator.flood_log import FloodLog
from utils.observability.logs import logger

MAX_HEAD_BYTES, MAX_FIELDS = 65_536, 100
"""Limits of one request's target and headers; h11 applies the first one to what is still
arriving, trailers too."""
IPV6_NETWORK = 64
"""Prefix length of the network that one household or host usually gets."""


RESERVED_DESCRIPTORS = 544
"""File descriptors that a worker keeps free for connections to Triton, two files of each
request, and the log."""
MIN_CONNECTIONS = 8
SWEEP_INTERVAL_S = 5.0
HEADERS_TIMEOUT_S = 20.0
"""Time for a complete request on an open connection. uvicorn itself closes connections idle
between requests."""
MIN_READ_BYTES, READ_WINDOW_S = 48 * 1024, 30.0
"""Bytes of an answer that its reader must take in each such time while more are waiting: 16 KiB
in ten seconds."""

CLOSE_DELAY_S = 2.0
"""Time for a caller to read a refusal; it also slows callers that retry at once."""
REFUSAL = (
    b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: %d\r\n\r\n%b"
)
SLICE_BYTES = 32_768
"""Bytes parsed before the framing of chunks is checked."""
MIN_CHUNK_TO_FRAMING = 8
"""Smallest ratio of a body to the framing of its chunks, beyond the framing that every request
may have."""

_LOG = FloodLog(logger, max_lines=1, window_s=10)
_ERRORS = logging.getLogger("uvicorn.error.http")
"""Replaces uvicorn's own logger, which writes a line for every malformed request and every
`Upgrade` header."""
_ERRORS.setLevel(logging.ERROR)
_ERRORS.addFilter(
    lambda record: not record.getMessage().startswith("ASGI callable returned without completing")
)
"""An answer is left incomplete on purpose, which the edge logs: its reader was too slow, or the
service stops."""


class CountedTransport:
    """A connection's transport that counts the bytes written to it."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport, self.written_bytes = transport, 0

    def write(self, data: bytes) -> None:
        """Write and count."""
        self.written_bytes += len(data)
        self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class BoundedProtocol(H11Protocol):
    """One connection. Beyond the limit, a new one replaces the one that has waited longest for
    its caller.
    """

    def __init__(
        self, *arguments: Any, waiting: dict[BoundedProtocol, float], limit: int, **options: Any
    ) -> None:
        """Create a connection.

        Args:
            arguments, options: uvicorn's.
            waiting: the worker's connections without a request in progress, and when they began to
                wait; longest first.
            limit: number of connections of the worker.
        """
        super().__init__(*arguments, **options)
        self.logger = _ERRORS
        self._waiting, self._limit = waiting, limit
        self._refused, self._framing_bytes = False, 0
        self._taken_bytes, self._window_began = 0, 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, and close the one that has waited longest if there are too many."""
        super().connection_made(cast("asyncio.Transport", CountedTransport(transport)))
        self._waiting[self] = self.loop.time()
        if len(self.connections) > self._limit:
            oldest = next(iter(self._waiting))
            line = f"too many connections (at most {self._limit}); closed the longest-waiting one"
            _LOG.log("too-many-connections", line, oldest.address)
            oldest.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._waiting.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, and refuse a chunked body that is mostly framing: h11 takes 7 us
        for each chunk.
        """
        for start in range(0, len(data), SLICE_BYTES):
            if self._refused:
                return
            piece, cycle = data[start : start + SLICE_BYTES], self.cycle
            earlier = len(cycle.body) if cycle else 0
            super().data_received(piece)
            if (
                cycle
                and cycle is self.cycle
                and cycle.more_body
                and not (cycle.response_complete or self._refused)
            ):
                of_body = len(cycle.body) - earlier
                self._framing_bytes += len(piece) - of_body - of_body // MIN_CHUNK_TO_FRAMING
                if self._framing_bytes > 2 * MAX_HEAD_BYTES:
                    self.send_400_response("Invalid HTTP request received.")

    def handle_events(self) -> None:
        """Parse what has arrived; a connection with a request in progress no longer waits."""
        super().handle_events()
        if not self._refused and self.cycle is not None and not self.cycle.response_complete:
            self._waiting.pop(self, None)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._waiting[self], self._framing_bytes = self.loop.time(), 0
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, read no more, and close the connection once the caller has had
        time to read.

        Closing a connection with unread input resets it, and the caller loses the answer. One that
        has begun to get another answer gets no second one.
        """
        self._refused = True
        line = (
            f"{self.address}: 400 malformed-request: expected HTTP/1.1 with a head of at most"
            f" {MAX_HEAD_BYTES} bytes"
        )
        _LOG.log("malformed-request", line, self.address)
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(REFUSAL % (len(msg), msg.encode()))
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.flow.pause_reading()
        self._waiting.setdefault(self, self.loop.time())
        self.loop.call_later(CLOSE_DELAY_S, self.abort)

    @property
    def address(self) -> str:
        """Return the address or network of the other end."""
        return network(self.client[0]) if self.client else "unknown"

    def is_stalled(self, now: float) -> bool:
        """Return whether the caller takes too long to send a request or to read an answer; call
        this at intervals.
        """
        unread_bytes = self.transport.get_write_buffer_size()
        if not unread_bytes:
            self._window_began = 0.0
            # The edge limits the time of the body and of the answer.
            return now - self._waiting.get(self, now) > HEADERS_TIMEOUT_S
        taken_bytes = cast("CountedTransport", self.transport).written_bytes - unread_bytes
        if self._window_began and now - self._window_began < READ_WINDOW_S:
            return False
        is_slow = bool(self._window_began) and taken_bytes - self._taken_bytes < MIN_READ_BYTES
        self._taken_bytes, self._window_began = taken_bytes, now
        return is_slow

    def abort(self) -> None:
        """Close the connection at once."""
        self._waiting.pop(self, None)
        self.transport.abort()
        self.connections.discard(self)


def install(server: Server, max_connections: int) -> None:
    """Make a server with a loaded configuration, which does not listen yet, use
    `BoundedProtocol`.
    """
    config = server.config
    config.h11_max_incomplete_event_size = MAX_HEAD_BYTES
    config.ws_protocol_class = None
    protocol = partial(BoundedProtocol, waiting={}, limit=allowed_connections(max_connections))
    config.http_protocol_class = protocol  # type: ignore[assignment]


async def close_stalled_connections(server: Server) -> None:
    """Close stalled connections of a server at intervals, without end."""
    loop = asyncio.get_running_loop()
    connections: set[Any] = server.server_state.connections
    while True:
        await asyncio.sleep(SWEEP_INTERVAL_S)
        _LOG.summarise_ended()
        stalled = [connection for connection in connections if connection.is_stalled(loop.time())]
        for connection in stalled:
            connection.abort()
        if stalled:
            logger.info("closed %d stalled connection(s)", len(stalled))


def allowed_connections(setting: int) -> int:
    """Return the setting, or less if this process has too few file descriptors.

    Raises:
        OSError: /proc cannot be read.
    """
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(Path("/proc/self/fd").iterdir()))
    allowed = max(MIN_CONNECTIONS, descriptors - used - RESERVED_DESCRIPTORS)
    if allowed < setting:
        logger.warning(
            "accepting at most %d connections instead of %d: this process is limited to %d file"
            " descriptors (LimitNOFILE, ulimit -n)",
            allowed,
            setting,
            descriptors,
        )
    return min(setting, allowed)


def address(scope: Scope) -> str:
    """Return the caller's address (IPv4) or network (IPv6).

    Behind a trusted proxy (uvicorn's `FORWARDED_ALLOW_IPS`) it is the address that the proxy
    forwards.
    """
    client = scope.get("client")
    return network(str(client[0])) if client else "unknown"


def network(ip: str) -> str:
    """Return the /64 network of an IPv6 address: its owner has 2^64 addresses. Return other
    texts unchanged.
    """
    try:
        parsed = ipaddress.ip_address(ip)
    except ValueError:
        return ip
    return (
        ip
        if parsed.version == 4
        else str(ipaddress.ip_network((parsed, IPV6_NETWORK), strict=False))
    )
