"""uvicorn's HTTP protocol with bounds: bytes and fields of a request's head, pipelined requests, connections.

uvicorn keeps a head or trailers of any size, and joins the pieces of an incomplete field again at each arrival. Here
bytes are counted before they are parsed further. A request that goes over a limit, or that is not HTTP, is answered by
the edge as any other refusal (`REFUSAL` in the scope), after the answers to the requests before it.

All that is private to uvicorn and used by this service is named in `USED`, and checked when a worker starts.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import httptools
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn import Server
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from utils.edge.bodies import DRAIN_SECONDS
from utils.edge.callers import HEADER
from utils.edge.connections import Connections
from utils.errors import HeadTooLarge, MalformedRequest, ServiceError

MAX_HEAD_BYTES, MAX_FIELDS = 65_536, 100
"""Limits of one request: request line, header block, trailers and chunk extensions together."""
MAX_PIPELINED = 100
"""Requests that may wait on one connection for the answers before theirs; uvicorn needs some 4 kB for each."""
FRAMING_BYTES = 20
"""Line ends and size of a chunk, with up to 16 hexadecimal digits: not counted as part of the head."""
MAX_THROWN_AWAY_BYTES = 1_048_576
"""Bytes read after a refusal, so that a caller who has sent a little too much sees it; a flood is left unread."""
SLICE_BYTES = 16_384
"""Bytes parsed at a time: an incomplete field can exceed the limit by this much before it is noticed."""
REFUSAL = "mobile_sam.refusal"
"""Name of an ASGI extension: the `ServiceError` that the edge answers the request with."""
USED: dict[type, set[str]] = {
    HttpToolsProtocol: {"config", "app", "parser", "flow", "client", "transport", "pipeline", "scope", "headers"}
    | {"cycle", "_start_asgi_task", "_unset_keepalive_if_required", "on_message_begin", "on_url", "on_header"}
    | {"on_headers_complete", "on_body", "on_message_complete", "on_response_complete", "pause_writing"}
    | {"resume_writing", "logger", "access_logger", "access_log", "server_state", "shutdown", "connection_lost"},
    RequestResponseCycle: {"scope", "transport", "disconnected", "keep_alive", "message_event", "body", "more_body"}
    | {"response_started", "response_complete", "chunked_encoding", "expected_content_length", "send"},
    FlowControl: {"write_paused", "pause_reading"},
}


class UnknownServerError(RuntimeError):
    """The HTTP server is not the uvicorn that this module extends."""


def install(server: Server, connections: Connections) -> None:
    """Have a server use `BoundedProtocol` for the connections that it will accept.

    Args:
        server: a server that has loaded its configuration and does not listen yet.
        connections: the worker's connections.

    Raises:
        UnknownServerError: the server has another protocol, or uvicorn's classes lack what is used here.
    """
    config = server.config
    if config.http_protocol_class is not HttpToolsProtocol:
        raise UnknownServerError(f"expected uvicorn's HttpToolsProtocol, got {config.http_protocol_class!r}")
    for kind, names in USED.items():
        there = set(dir(kind)) | set(kind.__init__.__code__.co_names)  # type: ignore[misc]
        if names - there:
            raise UnknownServerError(f"uvicorn's {kind.__name__} has no {', '.join(sorted(names - there))} any more")
    config.ws_protocol_class = None
    config.http_protocol_class = partial(BoundedProtocol, bound=connections)  # type: ignore[assignment]


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *arguments: Any, bound: Connections, **options: Any) -> None:
        """Make one, as uvicorn does.

        Args:
            *arguments: as of uvicorn's.
            bound: the worker's connections, this one among them.
            **options: as of uvicorn's.
        """
        super().__init__(*arguments, **options)
        self._bound = bound
        self._running: RequestResponseCycle | None = None
        self._deaf = False
        """Whether what comes is thrown away: after a refusal, and after a request to change the protocol."""
        self._thrown_away = 0
        self._field_bytes, self._fields, self._raw_bytes, self._in_body = 0, 0, 0, False
        self._chunked = False
        self._body_bytes, self._pieces, self._ended = 0, 0, False
        self._error: ServiceError | None = None

    # Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, or close it where there are too many."""
        super().connection_made(transport)
        if not self._bound.add(self, self.client[0] if self.client else ""):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell every request on the connection; uvicorn tells the last one alone."""
        self._bound.remove(self)
        for cycle in (self._running, *(cycle for cycle, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                _end(cycle)
        self.pipeline.clear()
        super().connection_lost(exc)
        # The parser holds this object, and the collector of such cycles comes seldom to what has lived for a while.
        self.parser = self._running = self.cycle = None  # type: ignore[assignment]
        self.headers, self.scope = [], None  # type: ignore[assignment]

    def abort(self) -> None:
        """Close the connection without sending what waits."""
        self.transport.abort()

    def pause_writing(self) -> None:
        """Note that the reader is slow."""
        super().pause_writing()
        self._bound.waits(self)

    def resume_writing(self) -> None:
        """Note that the reader goes on."""
        super().resume_writing()
        self._note_state()

    def _note_state(self) -> None:
        running = self._running
        if running and not (running.response_complete or running.more_body or self.flow.write_paused):
            self._bound.works(self)
        else:
            self._bound.waits(self)

    # Requests

    def data_received(self, data: bytes) -> None:
        """Parse what came, in slices, and count it."""
        self._unset_keepalive_if_required()
        start = 0
        while start < len(data):
            if self._deaf:
                self._throw_away(len(data) - start)
                return
            # Of a body of known length nothing is counted; uvicorn joins the pieces that it gets at once.
            size = len(data) if self._in_body and not self._chunked else SLICE_BYTES
            self._parse(data[start : start + size])
            start += size

    def _parse(self, piece: bytes) -> None:
        self._body_bytes, self._pieces, self._ended = 0, 0, False
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            # The request is answered as if it had not asked; what follows may be of any protocol.
            self._deaf = True
            self.cycle.keep_alive = False
        except httptools.HttpParserError:
            self._refuse(self._error or MalformedRequest("expected HTTP/1.1 or HTTP/1.0, got something else"))
        else:
            # Of a slice in which a request ended, the rest belongs to the next: its fields are counted one by one.
            if not self._ended:
                self._raw_bytes += max(0, len(piece) - self._body_bytes - FRAMING_BYTES * self._pieces)
            if self._raw_bytes > MAX_HEAD_BYTES:
                self._refuse(HeadTooLarge.of_bytes(MAX_HEAD_BYTES))

    def _throw_away(self, size: int) -> None:
        self._thrown_away += size
        if self._thrown_away > MAX_THROWN_AWAY_BYTES:
            self.flow.pause_reading()

    def _count(self, size: int) -> None:
        """Count bytes of a head. An exception here ends the parser's work on what came."""
        self._field_bytes += size
        if self._field_bytes > MAX_HEAD_BYTES:
            self._error = HeadTooLarge.of_bytes(MAX_HEAD_BYTES)
            raise self._error

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._field_bytes, self._fields, self._in_body = 0, 0, False

    def on_url(self, url: bytes) -> None:
        """Count a piece of the request's target."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a field, and forget it where it is a trailer."""
        self._count(len(name) + len(value) + len(": \r\n"))
        self._fields += 1
        if self._fields > MAX_FIELDS:
            self._error = HeadTooLarge.of_fields(MAX_FIELDS)
            raise self._error
        if not self._in_body:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Count the rest of the head, and have the request be answered."""
        self._count(len(self.parser.get_method()) + len("  HTTP/1.1\r\n\r\n"))
        self._in_body, self._chunked = True, any(name == b"transfer-encoding" for name, _ in self.headers)
        super().on_headers_complete()
        if len(self.pipeline) > MAX_PIPELINED:
            self._error = MalformedRequest(
                f"expected at most {MAX_PIPELINED} requests to wait on a connection, got more"
            )
            raise self._error

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        self._body_bytes += len(body)
        self._pieces += 1
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        super().on_message_complete()
        self._ended, self._raw_bytes, self._in_body = True, 0, False
        self._note_state()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        self._note_state()
        super()._start_asgi_task(cycle, _paced(app, cycle))  # type: ignore[arg-type]

    def on_response_complete(self) -> None:
        """Go on with the next request."""
        super().on_response_complete()
        self._note_state()

    # Refusals

    def _refuse(self, error: ServiceError) -> None:
        """Have the edge answer the request that is arriving with an error, once those before it are answered."""
        self._deaf = True
        arriving = self.cycle if self._in_body and self.cycle is not None and self.cycle.more_body else None
        own = [(name, value) for name, value in self.headers or () if name == HEADER]
        self.on_message_begin()
        scope = {"method": "-", "path": "-", "raw_path": b"-", "query_string": b"", "headers": own}
        self.scope.update({**scope, "extensions": {REFUSAL: error}})  # type: ignore[typeddict-item]
        if arriving is not None:
            _end(arriving)
            if self.pipeline and self.pipeline[0][0] is arriving:
                self.pipeline.popleft()
            elif arriving.response_started:
                self.abort()
                return
        busy = self._running is not None and self._running is not arriving and not self._running.response_complete
        self.cycle = RequestResponseCycle(
            scope=self.scope,
            transport=_LastAnswer(self.transport),  # type: ignore[arg-type]
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


class _LastAnswer:
    """A transport whose end is held back until the caller has had time to read.

    Closing a connection while bytes of the caller's are unread takes from the caller what was sent before.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        """Send the end, and close after a while, or when the caller does."""
        if self._transport.is_closing():
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        asyncio.get_running_loop().call_later(DRAIN_SECONDS, self._transport.abort)


def _end(cycle: RequestResponseCycle) -> None:
    """Tell an application that nobody waits for its answer."""
    cycle.disconnected, cycle.waiting_for_100_continue = True, False
    cycle.message_event.set()


def _paced(app: Any, cycle: RequestResponseCycle) -> ASGIApp:
    """An application whose `send` returns from the end of an answer once the caller has read most of it.

    An answer without a length goes to an HTTP/1.0 caller without chunks, and the end of the connection ends it.
    """

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        without_chunks = False

        async def paced(message: Message) -> None:
            nonlocal without_chunks
            body = message.get("body", b"")
            if message["type"] == "http.response.start":
                named = {name.lower() for name, _ in message.get("headers", ())}
                without_chunks = scope["http_version"] == "1.0" and b"content-length" not in named
                if without_chunks:
                    cycle.chunked_encoding = False
            else:
                if without_chunks:
                    cycle.expected_content_length = len(body)
                if len(body) > HIGH_WATER_LIMIT and not message.get("more_body", False):
                    await send({**message, "more_body": True})  # uvicorn waits for the reader before the next message
                    message = {"type": message["type"], "body": b""}
            await send(message)

        await app(scope, receive, paced)

    return run
