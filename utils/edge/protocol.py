"""uvicorn's HTTP protocol with limits on request heads, pipelined requests and connections.

uvicorn accepts any number of connections, and each one keeps a file descriptor. It accepts heads and trailers of any
size, and copies an incomplete field whenever a piece of it arrives. Here bytes are counted before they are parsed
further. A request that exceeds a limit or is not HTTP gets its refusal from the edge (`REFUSAL_EXTENSION` in the
scope), after the answers to earlier requests.

Who sent a request, and its id, are also read from its head here (`address`, `request_id`).

`utils.bento.HOOKS` lists the private parts of uvicorn that this module uses.
"""

import asyncio
import ipaddress
import logging
import re
import uuid
from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any

import httptools
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn import Server
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from utils.api.errors import HeadTooLarge, MalformedRequest, ServiceError
from utils.edge.admission import add
from utils.edge.bodies import DRAIN_TIMEOUT_S
from utils.observability.logs import FloodLog

logger = logging.getLogger("bentoml.mobile_sam")

MAX_HEAD_BYTES, MAX_FIELDS = 65_536, 100
"""Limits of one request: request line, headers, trailers and chunk extensions together."""
MAX_PIPELINED = 100
"""Requests queued on one connection; uvicorn needs about 4 kB for each."""
CHUNK_FRAMING_BYTES = 20
"""Line ends and size of a chunk, up to 16 hexadecimal digits; not counted as part of the head."""
MAX_DISCARDED_BYTES = 1_048_576
"""Bytes read after a refusal. A caller who has sent a little too much sees the answer; a flood stays unread."""
SLICE_BYTES = 16_384
"""Bytes parsed at a time; an incomplete field can exceed the limit by this much."""
REFUSAL_EXTENSION = "mobile_sam.refusal"
"""ASGI extension with the `ServiceError` that the edge answers the request with."""
REQUEST_ID_HEADER = b"x-request-id"
VALID_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
"""Ids that are safe in a log line and in a header."""
IPV6_NETWORK = 64
"""Prefix length of the network that one household or host usually gets."""


class UnknownServerError(RuntimeError):
    """The HTTP server is not uvicorn with its protocol for httptools."""


class Connections:
    """Transports of the open connections of one API worker, bounded in total and for each address.

    A new connection beyond a limit replaces the one that has waited longest for its caller: idle, without a complete
    request, or with an unread answer. If the service is working for all of them, the new one is closed.
    """

    def __init__(self, max_connections: int) -> None:
        """Start without connections; each address (IPv6: /64 network) gets at most half of the maximum."""
        self._max, self._max_per_address = max_connections, max(1, max_connections // 2)
        self._addresses: dict[asyncio.Transport, str] = {}
        self._counts: Counter[str] = Counter()
        # Longest-waiting first, for each address and for all ("*").
        self._waiting: dict[str, dict[asyncio.Transport, None]] = {"*": {}}
        self._log = FloodLog(logger, max_lines=1, window_s=10)

    def __len__(self) -> int:
        return len(self._addresses)

    def add(self, connection: asyncio.Transport, ip: str) -> bool:
        """Add a new connection, marked as waiting; close another one if there are too many.

        Returns:
            False if the connection is refused and must be closed by the code that called this method.
        """
        self._log.summarise_ended()
        address = network(ip)
        if self._counts[address] >= self._max_per_address:
            group, limit = address, self._max_per_address
        elif len(self) >= self._max:
            group, limit = "*", self._max
        else:
            group = ""
        if group:
            oldest = next(iter(self._waiting.get(group, ())), None)
            closed = "closed the longest-waiting one" if oldest else "closed the new one"
            origin = f" from {address}" if group == address else ""
            self._log.log("too-many-connections", f"too many connections{origin} (at most {limit}); {closed}", address)
            if oldest is None:
                return False
            self.remove(oldest)
            oldest.abort()
        self._addresses[connection] = address
        self._counts[address] += 1
        self.mark_waiting(connection)
        return True

    def remove(self, connection: asyncio.Transport) -> None:
        """Forget a closed connection."""
        self.mark_busy(connection)
        address = self._addresses.pop(connection, None)
        if address is not None:
            add(self._counts, address, -1)

    def mark_waiting(self, connection: asyncio.Transport) -> None:
        """Mark a connection as waiting for its caller; the time of an earlier mark stays."""
        address = self._addresses.get(connection)
        if address is not None:
            for group in (address, "*"):
                self._waiting.setdefault(group, {}).setdefault(connection)

    def mark_busy(self, connection: asyncio.Transport) -> None:
        """Mark a connection as one that the service is working for."""
        address = self._addresses.get(connection)
        if address is not None and address in self._waiting:
            for group in (address, "*"):
                self._waiting[group].pop(connection, None)
            if not self._waiting[address]:
                del self._waiting[address]


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *arguments: Any, connections: Connections, **options: Any) -> None:
        """Create the protocol of one of the worker's `connections`; the other arguments are uvicorn's."""
        super().__init__(*arguments, **options)
        self._connections = connections
        self._running: RequestResponseCycle | None = None
        self._discarding = False
        """True while input is discarded: after a refusal, and after CONNECT."""
        self._discarded_bytes = 0
        self._field_bytes, self._fields, self._raw_bytes, self._in_body = 0, 0, 0, False
        self._chunked = False
        self._body_bytes, self._pieces, self._ended = 0, 0, False
        self._error: ServiceError | None = None

    # Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or close it if there are too many."""
        super().connection_made(transport)
        if not self._connections.add(transport, self.client[0] if self.client else ""):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify every request on the connection; uvicorn notifies only the last one."""
        self._connections.remove(self.transport)
        for cycle in (self._running, *(cycle for cycle, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                _disconnect(cycle)
        self.pipeline.clear()
        super().connection_lost(exc)
        # Break the reference cycle with the parser: the cyclic collector rarely reaches long-lived objects.
        self.parser = self._running = self.cycle = None  # type: ignore[assignment]
        self.headers, self.scope = [], None  # type: ignore[assignment]

    def pause_writing(self) -> None:
        """Mark the connection as waiting for a slow reader."""
        super().pause_writing()
        self._connections.mark_waiting(self.transport)

    def resume_writing(self) -> None:
        """Update the connection's state when the reader continues."""
        super().resume_writing()
        self._update_state()

    def _update_state(self) -> None:
        running = self._running
        if running and not (running.response_complete or running.more_body or self.flow.write_paused):
            self._connections.mark_busy(self.transport)
        else:
            self._connections.mark_waiting(self.transport)

    # Requests

    def data_received(self, data: bytes) -> None:
        """Parse and count received bytes, in slices."""
        self._unset_keepalive_if_required()
        start = 0
        while start < len(data):
            if self._discarding:
                self._discard(len(data) - start)
                return
            # Bodies of known length are not counted, and parsed faster in one piece.
            size = len(data) if self._in_body and not self._chunked else SLICE_BYTES
            self._parse(data[start : start + size])
            start += size

    def _parse(self, piece: bytes) -> None:
        self._body_bytes, self._pieces, self._ended = 0, 0, False
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            if self._upgrade_is_ignored:
                self._parse_without_upgrade(piece[upgrade.args[0] :])
            else:
                # The request is answered in HTTP; what follows may be any protocol.
                self._discarding = True
                self.cycle.keep_alive = False
        except httptools.HttpParserError:
            self._refuse(self._error or MalformedRequest("expected HTTP/1.1 or HTTP/1.0, got something else"))
        else:
            # If a request ended in this slice, the rest belongs to the next one; its fields are counted one by one.
            if not self._ended:
                self._raw_bytes += max(0, len(piece) - self._body_bytes - CHUNK_FRAMING_BYTES * self._pieces)
            if self._raw_bytes > MAX_HEAD_BYTES:
                self._refuse(HeadTooLarge.of_bytes(MAX_HEAD_BYTES))

    @property
    def _upgrade_is_ignored(self) -> bool:
        """Return whether the parser has stopped at a field `Upgrade`, which a server may ignore (RFC 9110, 7.8).

        Java's HTTP client sends one for HTTP/2 with the first request of a connection.
        """
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _parse_without_upgrade(self, rest: bytes) -> None:
        """Parse a request's head again without `Upgrade`, after which the parser skips the body, and then the rest."""
        start = b"%s %s HTTP/%s\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        fields = [b"%s: %s\r\n" % field for field in self.headers if field[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self._raw_bytes = 0
        self._parse(b"".join([start, *fields, b"\r\n", rest]))

    def _discard(self, size: int) -> None:
        self._discarded_bytes += size
        if self._discarded_bytes > MAX_DISCARDED_BYTES:
            self.flow.pause_reading()

    def _count(self, size: int) -> None:
        """Count bytes of a head; an exception here stops the parser."""
        self._field_bytes += size
        if self._field_bytes > MAX_HEAD_BYTES:
            self._error = HeadTooLarge.of_bytes(MAX_HEAD_BYTES)
            raise self._error

    def on_message_begin(self) -> None:
        """Start a request."""
        super().on_message_begin()
        self._field_bytes, self._fields, self._in_body = 0, 0, False

    def on_url(self, url: bytes) -> None:
        """Count a piece of the URL."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a field, and drop it if it is a trailer."""
        self._count(len(name) + len(value) + len(": \r\n"))
        self._fields += 1
        if self._fields > MAX_FIELDS:
            self._error = HeadTooLarge.of_fields(MAX_FIELDS)
            raise self._error
        if not self._in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Count the rest of the head, and start or queue the request."""
        self._count(len(self.parser.get_method()) + len("  HTTP/1.1\r\n\r\n"))
        if self._upgrade_is_ignored:
            return
        self._in_body, self._chunked = True, any(name == b"transfer-encoding" for name, _ in self.headers)
        super().on_headers_complete()
        if len(self.pipeline) > MAX_PIPELINED:
            self._error = MalformedRequest(
                f"expected at most {MAX_PIPELINED} requests queued on a connection, got more"
            )
            raise self._error

    def on_body(self, body: bytes) -> None:
        """Count a piece of a body."""
        self._body_bytes += len(body)
        self._pieces += 1
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Finish a request."""
        if self._upgrade_is_ignored:
            return
        super().on_message_complete()
        self._ended, self._raw_bytes, self._in_body = True, 0, False
        self._update_state()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        self._update_state()
        super()._start_asgi_task(cycle, _with_backpressure(app, cycle))  # type: ignore[arg-type]

    def on_response_complete(self) -> None:
        """Continue with the next request."""
        super().on_response_complete()
        self._update_state()

    # Refusals

    def _refuse(self, error: ServiceError) -> None:
        """Have the edge answer the arriving request with an error, after the answers to earlier requests."""
        self._discarding = True
        arriving = self.cycle if self._in_body and self.cycle is not None and self.cycle.more_body else None
        request_ids = [(name, value) for name, value in self.headers or () if name == REQUEST_ID_HEADER]
        self.on_message_begin()
        scope = {"method": "-", "path": "-", "raw_path": b"-", "query_string": b"", "headers": request_ids}
        self.scope.update({**scope, "extensions": {REFUSAL_EXTENSION: error}})  # type: ignore[typeddict-item]
        if arriving is not None:
            _disconnect(arriving)
            if self.pipeline and self.pipeline[0][0] is arriving:
                self.pipeline.popleft()
            elif arriving.response_started:
                self.transport.abort()
                return
        busy = self._running is not None and self._running is not arriving and not self._running.response_complete
        self.cycle = RequestResponseCycle(
            scope=self.scope,
            transport=_LingeringTransport(self.transport),  # type: ignore[arg-type]
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=False,
            on_response=self.on_response_complete,
        )
        self.cycle.more_body = False
        if busy:
            self.pipeline.appendleft((self.cycle, self.app))
        else:
            self._start_asgi_task(self.cycle, self.app)


def install(server: Server, connections: Connections) -> None:
    """Make a server with a loaded configuration, which does not listen yet, use `BoundedProtocol`.

    Raises:
        UnknownServerError: the server has another protocol.
    """
    config = server.config
    if config.http_protocol_class is not HttpToolsProtocol:
        raise UnknownServerError(f"expected uvicorn's HttpToolsProtocol, got {config.http_protocol_class!r}")
    config.ws_protocol_class = None
    config.http_protocol_class = partial(BoundedProtocol, connections=connections)  # type: ignore[assignment]


class _LingeringTransport:
    """Transport that closes only after the caller has had time to read.

    Closing a connection with unread input resets it, and the caller loses the answer.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        """Send the end of the stream, and close later or when the caller does."""
        if self._transport.is_closing():
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        asyncio.get_running_loop().call_later(DRAIN_TIMEOUT_S, self._transport.abort)


def _disconnect(cycle: RequestResponseCycle) -> None:
    """Tell an application that the caller has disconnected."""
    cycle.disconnected, cycle.waiting_for_100_continue = True, False
    cycle.message_event.set()


def _with_backpressure(app: Any, cycle: RequestResponseCycle) -> ASGIApp:
    """Return an application that waits in its last `send` until the caller has read most of the answer.

    For HTTP/1.0 it also sends answers without a length unchunked; the end of the connection ends them.
    """

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        without_chunks = False

        async def send_and_wait(message: Message) -> None:
            nonlocal without_chunks
            body = message.get("body", b"")
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message.get("headers", ())}
                without_chunks = scope["http_version"] == "1.0" and b"content-length" not in names
                if without_chunks:
                    cycle.chunked_encoding = False
            else:
                if without_chunks:
                    cycle.expected_content_length = len(body)
                if len(body) > HIGH_WATER_LIMIT and not message.get("more_body", False):
                    await send({**message, "more_body": True})  # uvicorn waits for the reader before the next message
                    message = {"type": message["type"], "body": b""}
            await send(message)

        await app(scope, receive, send_and_wait)

    return run


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the caller's own request id if it is valid, else a new one."""
    for name, value in headers:
        if name == REQUEST_ID_HEADER and VALID_REQUEST_ID.fullmatch(value):
            return value.decode()
    return uuid.uuid4().hex


def address(scope: Scope) -> str:
    """Return the caller's address (IPv4) or network (IPv6).

    Behind a trusted proxy (uvicorn's `FORWARDED_ALLOW_IPS`) it is the address that the proxy forwards.
    """
    client = scope.get("client")
    return network(str(client[0])) if client else "unknown"


def network(ip: str) -> str:
    """Return the /64 network of an IPv6 address: its owner has 2^64 addresses. Return other texts unchanged."""
    try:
        parsed = ipaddress.ip_address(ip)
    except ValueError:
        return ip
    return ip if parsed.version == 4 else str(ipaddress.ip_network((parsed, IPV6_NETWORK), strict=False))
