"""ASGI middleware around BentoML: checks each request before BentoML routes it, and completes each answer.

The steps, in order:

1. Assign a request id. Every answer carries it, along with security headers. Refuse too large heads.
2. Refuse unknown paths and methods: BentoML would create a metric for each.
3. Answer the Swagger page, `/docs.json` and the health paths, whatever the state of the models.
4. Refuse work and changes for foreign web pages; check the API key and the rate limit.
5. Refuse work while the service stops, while Triton is unavailable, or when too many requests are in progress.
6. Read the body, up to a cap and within a time limit.
7. Run BentoML, within a time limit and until the caller disconnects. BentoML's own errors become
   `application/problem+json`.

BentoML's own limits on time and concurrency, which are outside of this middleware, are off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from http import HTTPStatus

from opentelemetry import trace
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from utils.ahead.encoder import EmbedAhead
from utils.api.answers import JSON_LINES, REFUSAL_LOG, problem_line, problem_of, problem_response
from utils.api.errors import (
    MEDIA_TYPE,
    BodyTooLarge,
    ForeignPage,
    InferenceFailed,
    InferenceUnavailable,
    Overloaded,
    Problem,
    Stopping,
    TooManyRequests,
    UnknownPath,
    UnsupportedMedia,
    WrongMethod,
)
from utils.api.received import check_content_encoding
from utils.edge.admin import Admin
from utils.edge.admission import (
    SMALL_ANSWER_BYTES,
    STOPPING_DETAIL,
    Admission,
    StartAnswer,
)
from utils.edge.bodies import LARGE_BODY_BYTES, Body, ClientDisconnected, run_application
from utils.edge.connections import JOB, address, check_head, image_id, request_id, route_of
from utils.edge.keys import ApiKeys
from utils.edge.origins import Origins
from utils.edge.rate import RateLimit
from utils.edge.shares import RecentCallers, Turns
from utils.integrations.adapter import Adapters
from utils.observability.context import (
    ADDRESS,
    CALLER,
    IMAGE_ID,
    REASON,
    RECORD,
    REQUEST_ID,
    TARGET,
    AnswerReason,
    RequestRecord,
    caller,
)
from utils.observability.logs import ERROR_LOG, shown
from utils.observability.metrics import OTHER_PATH, Counts, health_metrics
from utils.observability.reading import Reading
from utils.triton.health import Health

LIVE, READY, METRICS = ("/livez", "/healthz"), ("/readyz", "/health"), "/metrics"
READ, WRITE = ("GET", "HEAD"), ("POST",)
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    # Both together allow the page's decoder more than one thread.
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    # Swagger UI and the page at /ui need their own files, WebAssembly, inline styles, images from data and blob URLs.
    "Content-Security-Policy": "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}
REPLACED_HEADERS = {b"content-type", b"content-length"}
STATIC = "/static_content"
MAX_LARGE_BODIES = 2
"""Large bodies that a worker reads at once: they take much of the event loop's time."""
CLIENT_CLOSED_REQUEST = 499
"""nginx's status for a caller that disconnected; used in metrics only."""


@dataclass(frozen=True)
class Limits:
    """Limits of one request."""

    max_body_bytes: int
    body_timeout_s: float
    answer_timeout_s: Callable[[], float]
    """Time from the end of the body to the start of the answer."""


@dataclass(eq=False)
class Edge:
    """ASGI middleware around BentoML's application, as described in this module's docstring."""

    app: ASGIApp
    _: KW_ONLY
    work_paths: frozenset[str]
    """Paths that run inference: the application's POST paths, the adapters', and some of `pages`."""
    file_paths: frozenset[str]
    """Static files, which metrics count as one path."""
    pages: Mapping[str, ASGIApp]
    """Handlers of further GET paths."""
    file_answers: frozenset[str] = frozenset()
    """Paths whose large answers are read from a file piece by piece, and so take no memory while they are sent."""
    limits: Limits
    admission: Admission
    health: Callable[[], Health]
    counts: Counts
    triton_metrics: Callable[[], Awaitable[bytes]]
    adapters: Adapters
    """The application's paths in the languages of annotation tools."""
    check_room: Mapping[str, Callable[[bytes], None]] = field(default_factory=dict)
    """Functions by path that take a body; they raise `Overloaded` if it would be refused later."""
    keys: ApiKeys | None = None
    """API keys; each request that runs inference needs one."""
    rate: RateLimit | None = None
    """Limits of each key name, or without keys of each address."""
    metrics_need_key: bool = False
    admin: Admin | None = None
    jobs: EmbedAhead | None = None
    """Jobs in the background; their paths need an API key."""
    active: RecentCallers = field(default_factory=RecentCallers)
    """Addresses that send work, noted here; others may share it."""
    origins: Origins = field(default_factory=Origins)
    """Check of the headers of POST requests."""

    def __post_init__(self) -> None:
        """Derive the handlers and the methods of all paths."""
        self._metrics = Reading(self._read_metrics)
        self._large_bodies = Turns(MAX_LARGE_BODIES, active=self.active)
        self._handlers: dict[str, ASGIApp] = {
            **self.pages,
            **dict.fromkeys(LIVE, PlainTextResponse("alive\n")),
            **dict.fromkeys(READY, self._answer_readiness),
            METRICS: self._answer_metrics,
        }
        self._key_pages = self.adapters.key_pages | {JOB} | ({METRICS} if self.metrics_need_key else set())
        self.methods: dict[str, tuple[str, ...]] = {
            **dict.fromkeys(self.work_paths, WRITE),
            **dict.fromkeys([*self._handlers, *self.file_paths, *self.adapters.pages], READ),
        }
        if self.jobs:
            self._handlers[JOB] = self.jobs
            self.methods[JOB] = (*READ, "DELETE")
        if self.admin:
            self._handlers |= dict.fromkeys(self.admin.methods, self.admin)
            self.methods |= self.admin.methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection event."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["path"].startswith(("http://", "https://")):  # absolute form (RFC 9112, 3.2.2), as for proxies
            scope = {**scope, "path": "/" + "".join(scope["path"].split("/", 3)[3:])}
        path = route_of(scope)
        known = path in self.methods or path in self.adapters.off  # other paths may contain a key
        REQUEST_ID.set(request_id(scope["headers"]))
        ADDRESS.set(shown(address(scope)))
        record = RequestRecord(shown(scope["method"], 20), path if known else OTHER_PATH)
        RECORD.set(record)
        TARGET.set(f"{record.method} {record.path}")
        REASON.set(AnswerReason())
        REFUSAL_LOG.summarise_ended()
        ERROR_LOG.summarise_ended()
        trace.get_current_span().set_attribute("mobile_sam.request_id", REQUEST_ID.get())
        answer = AnswerSender(self, path, send)
        body = Body(scope, receive, self._large_bodies, ADDRESS.get())
        try:
            await self._route(scope, receive, answer, body)
        except Exception as error:
            disconnected = isinstance(error, ClientDisconnected)
            if answer.started and isinstance(error, (Stopping, Overloaded)):  # ended by others, see `Ending`
                await answer.end_lines(error)
            elif answer.started:
                if not disconnected:
                    raise
            elif disconnected:
                REASON.get().slug = "caller-left"
                self.count(path, CLIENT_CLOSED_REQUEST)
            else:
                await self._refuse(error, scope, receive, answer, body)
        finally:
            body.release()

    async def _route(self, scope: Scope, receive: Receive, send: AnswerSender, body: Body) -> None:
        check_head(scope)
        path, method = route_of(scope), scope["method"]
        if path not in self.methods:
            raise UnknownPath.from_path(scope["path"], self.adapters.off.get(path))
        if method not in self.methods[path]:
            raise WrongMethod(path, self.methods[path], method)
        if method not in READ or path in self.work_paths:
            self.origins.check(scope["headers"])
        if path in self._key_pages:
            CALLER.set(self._authenticate(scope))
        app = self._handlers.get(path, self.app)
        if path in self.work_paths:
            await self._work(app, scope, receive, send, body)
            return
        if path == JOB:
            image_id(scope["headers"])  # a proxy routes by it here as well
        await app(scope, receive, send)

    def count(self, path: str, status: int) -> None:
        """Count an answer under one of a bounded number of paths."""
        label = STATIC if path in self.file_paths else path if path in self.methods else OTHER_PATH
        self.counts.count_answer(label, status, REASON.get().slug)
        trace.get_current_span().set_attribute("mobile_sam.reason", REASON.get().slug)

    def _authenticate(self, scope: Scope) -> str:
        """Return the name of the request's API key; empty where no key is needed."""
        return "" if self.keys is None else self.keys.name_of(scope["headers"])

    async def _answer_readiness(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send 200, or a problem while the service is not ready. Not logged: probes come every second or so."""
        health = self.health()
        response: Response = PlainTextResponse("ready\n")
        if self.admission.stopping or health.stopping:
            response = problem_response(Stopping(STOPPING_DETAIL).problem())
        elif not health.ready:
            response = problem_response(InferenceUnavailable(f"{health.state}: {health.reason}").problem())
        await response(scope, receive, send)

    async def _answer_metrics(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the metrics of all parts, which callers share: reading them takes milliseconds of processor time."""
        content, media_type = await self._metrics(scope)
        await Response(content, media_type=media_type)(scope, receive, send)

    async def _read_metrics(self, scope: Scope) -> tuple[bytes, str]:
        """Return the metrics of BentoML and the edge, of Triton's health, of Triton and of the queue, and their type.

        Raises:
            InferenceFailed: BentoML did not answer with its metrics.
        """
        head: Message = {}
        body = b""

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            nonlocal head, body
            if message["type"] == "http.response.start":
                head = message
            body += message.get("body", b"")

        await self.app({**scope, "method": "GET", "headers": []}, receive, send)
        if head["status"] != HTTPStatus.OK:
            raise InferenceFailed("the metrics could not be read; see the server's log")
        body += health_metrics(self.health()) + await self.triton_metrics()
        body += await self.jobs.metrics() if self.jobs else b""
        return body, Headers(raw=list(head["headers"]))["content-type"]

    async def _work(self, app: ASGIApp, scope: Scope, receive: Receive, send: AnswerSender, body: Body) -> None:
        """Check a request that runs inference, and have its application answer it."""
        name = self._authenticate(scope)
        CALLER.set(name)
        if self.rate is not None:
            await self.rate.check(name, address(scope))
        IMAGE_ID.set(image_id(scope["headers"]))
        self.active.note(ADDRESS.get())
        self.admission.check(caller())
        health = self.health()
        if health.stopping:
            raise Stopping(STOPPING_DETAIL)
        if not health.accepts_requests:
            raise InferenceUnavailable(f"the inference server is unavailable ({health.state}); retry later")
        if not all(value.isascii() for header, value in scope["headers"] if header == b"content-type"):
            # BentoML fails to decode it.
            raise UnsupportedMedia("bytes that are not ASCII")
        check_content_encoding(scope["headers"])
        limits = self.limits
        with self.admission.endable(
            "the service is shutting down and does not wait for the rest of the body"
        ) as ending:
            holding = self.admission.bodies.take(caller(), 0, ending.lose)
            data = [await body.read(limits.max_body_bytes, limits.body_timeout_s, holding)]
            ending.stopping_detail = "the service is shutting down and could not finish this request in time"
            if check_room := self.check_room.get(scope["path"]):
                check_room(data[0])
            with (
                self.admission.slot(caller(), ending.lose) as send.start_answer,
                self.counts.tracked_in_progress(),
            ):
                await run_application(app, scope, data.pop(), receive, send, timeout_s=limits.answer_timeout_s())

    async def _refuse(self, error: Exception, scope: Scope, receive: Receive, send: Send, body: Body) -> None:
        # Only pages send an Origin, never the path's tool: the tool's form of errors may have the status 200.
        is_page = isinstance(error, ForeignPage) and any(name == b"origin" for name, _ in scope["headers"])
        form = problem_response if is_page else partial(self.adapters.error_response, scope["path"])
        response = form(problem_of(error))
        if isinstance(error, (Overloaded, TooManyRequests)) and self.active.has_others(ADDRESS.get()):
            # Callers that ignore Retry-After would take the event loop's time from the others.
            body.release()
            await asyncio.sleep(Overloaded.retry_after)
        # uvicorn reads and discards the rest of a body to keep the connection, which is too expensive for large ones.
        max_unread = min(LARGE_BODY_BYTES, self.limits.max_body_bytes)
        much_unread = not body.ended and (body.chunked or (body.content_length or 0) > max_unread)
        if not (isinstance(error, BodyTooLarge) or much_unread):
            await response(scope, receive, send)
            return
        response.headers["Connection"] = "close"

        async def send_unfinished(message: Message) -> None:
            await send({**message, "more_body": True} if message["type"] == "http.response.body" else message)

        await response(scope, receive, send_unfinished)
        await body.drain()
        await send({"type": "http.response.body", "body": b""})


class AnswerSender:
    """The `send` of one request: adds headers to the answer, and counts it.

    Work in a slot is checked as well: error answers of other software become problem documents, and answers beyond the
    bytes that may wait for their readers are refused before they start. Answers without a length are streams: only
    one piece waits at a time.
    """

    def __init__(self, edge: Edge, path: str, send: Send) -> None:
        self._edge, self._path, self._send = edge, path, send
        self.started = False
        """True once the start of an answer was sent."""
        self.start_answer: StartAnswer | None = None
        """Counts the answer of work in a slot."""
        self._replaced = self._is_lines = False
        self._between_lines = False
        """Whether the answer is a stream of JSON lines that has not ended, and the last sent line is complete."""

    async def __call__(self, message: Message) -> None:
        """Send a part of the answer; the last one waits until the caller has read most of it."""
        if self._replaced:
            return
        if message["type"] == "http.response.start":
            if self.start_answer and (problem := self._problem_instead(message, self.start_answer)):
                self._replaced = True
                response = self._edge.adapters.error_response(self._path, problem)
                await self._start({**message, "status": response.status_code, "headers": response.raw_headers})
                await self._send({"type": "http.response.body", "body": response.body})
                return
            await self._start(message)
            return
        is_last = not message.get("more_body", False)
        if is_last and len(message.get("body", b"")) > SMALL_ANSWER_BYTES:
            await self._send({**message, "more_body": True})  # uvicorn waits for the reader before the next message
            message = {"type": message["type"], "body": b""}
        await self._send(message)
        if self._is_lines and (body := message.get("body", b"")):
            self._between_lines = body.endswith(b"\n")
        self._between_lines = self._between_lines and not is_last

    async def end_lines(self, error: Stopping | Overloaded) -> None:
        """End a stream of JSON lines with the problem, unless it was cancelled within a line."""
        line = problem_line(error)
        if self._between_lines:
            await self._send({"type": "http.response.body", "body": line})

    def _problem_instead(self, message: Message, start_answer: StartAnswer) -> Problem | None:
        """Return the problem to send instead of an answer that starts, if any."""
        status, headers = message["status"], {name.lower(): value for name, value in message.get("headers", ())}
        foreign = not headers.get(b"content-type", b"").startswith(MEDIA_TYPE.encode())
        if status < 400:
            try:
                if (length := headers.get(b"content-length")) is not None:
                    start_answer(0 if self._path in self._edge.file_answers else int(length))
            except Overloaded as error:
                return problem_of(error)
        elif foreign and self._path not in self._edge.adapters.by_path:
            phrase = HTTPStatus(status).phrase
            kept = {k.decode("latin-1"): v.decode("latin-1") for k, v in headers.items() if k not in REPLACED_HEADERS}
            return Problem(status, phrase.lower().replace(" ", "-"), phrase, phrase, headers=kept)
        return None

    async def _start(self, message: Message) -> None:
        """Send the start of an answer with the headers that every answer has."""
        self.started = True
        headers = MutableHeaders(raw=list(message.get("headers", [])))
        for name, value in SECURITY_HEADERS.items():
            headers.setdefault(name, value)
        headers["X-Request-ID"] = REQUEST_ID.get()
        if self._path in self._edge.work_paths:
            headers.setdefault("Cache-Control", "no-store")
        if self._edge.admission.stopping:
            headers["Connection"] = "close"
        self._is_lines = headers.get("Content-Type", "").startswith(JSON_LINES)
        self._edge.count(self._path, message["status"])
        if record := RECORD.get():
            record.status = message["status"]
        await self._send({**message, "headers": headers.raw})
