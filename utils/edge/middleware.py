"""ASGI middleware around BentoML: checks each request before BentoML routes it, and completes each answer.

The steps, in order:

1. Assign a request id. Every answer carries it, along with security headers.
   Refuse requests that are not valid HTTP or have too large a head (detected in `protocol.py`).
2. Refuse unknown paths and methods: BentoML would create a metric for each.
3. Answer the Swagger page, `/docs.json` and the health paths, whatever the state of the models.
4. Refuse POST requests of foreign web pages; check the API key and the rate limit.
5. Refuse work while the service stops, while Triton is unavailable, or when too many requests are in progress.
6. Read the body, up to a cap and within a time limit.
7. Run BentoML, within a time limit and until the caller disconnects. BentoML's own errors become
   `application/problem+json`.

BentoML's own limits on time and concurrency, which are outside of this middleware, are off.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

from opentelemetry import trace
from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from utils.api.answers import REFUSAL_LOG, problem_of, problem_response
from utils.api.errors import (
    MEDIA_TYPE,
    BodyTooLarge,
    ForeignPage,
    InferenceTimeout,
    InferenceUnavailable,
    MalformedRequest,
    Overloaded,
    Problem,
    Stopping,
    UnknownPath,
    UnsupportedMedia,
    WrongMethod,
)
from utils.edge.admin import Admin
from utils.edge.admission import (
    STOPPING_DETAIL,
    ActiveCallers,
    Admission,
    FairSemaphore,
    RefusalThrottle,
    StartAnswer,
)
from utils.edge.bodies import LARGE_BODY_BYTES, Body, ClientDisconnected
from utils.edge.keys import ApiKeys
from utils.edge.origins import Origins
from utils.edge.protocol import REFUSAL_EXTENSION, address, request_id
from utils.edge.rate import RateLimit
from utils.integrations.adapter import Adapters
from utils.observability.context import (
    ADDRESS,
    CALLER,
    REASON,
    REQUEST_ID,
    TARGET,
    AnswerReason,
)
from utils.observability.logs import shown
from utils.observability.metrics import OTHER_PATH, Counts, health_metrics
from utils.triton.health import Health

LIVE, READY, METRICS = ("/livez", "/healthz"), ("/readyz", "/health"), "/metrics"
READ, WRITE = ("GET", "HEAD"), ("POST",)
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    # Swagger UI and the page at /ui need their own files, inline styles, and images from data and blob URLs.
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}
REPLACED_HEADERS = {b"content-type", b"content-length"}
STATIC = "/static_content"
MAX_LARGE_BODIES = 2
"""Large bodies that a worker reads at once: they take much of the event loop's time."""
MAX_HEALTH_AGE_S = 0.1
CLIENT_CLOSED_REQUEST = 499
"""nginx's status for a caller that disconnected; used in metrics only."""


@dataclass(frozen=True)
class Limits:
    """Limits of one request."""

    max_body_bytes: int
    body_timeout_s: float
    answer_timeout_s: float
    """Time from the end of the body to the start of the answer."""


class Edge:
    """ASGI middleware around BentoML's application, as described in this module's docstring."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        work_paths: frozenset[str],
        file_paths: frozenset[str],
        pages: Mapping[str, ASGIApp],
        limits: Limits,
        admission: Admission,
        health: Callable[[], Health],
        counts: Counts,
        check_room: Mapping[str, Callable[[bytes], None]] | None = None,
        triton_metrics: Callable[[], Awaitable[bytes]],
        keys: ApiKeys | None = None,
        rate: RateLimit | None = None,
        metrics_need_key: bool = False,
        admin: Admin | None = None,
        adapters: Adapters | None = None,
        active: ActiveCallers | None = None,
        origins: Origins | None = None,
    ) -> None:
        """Wrap an application.

        Args:
            app: the application.
            work_paths: the application's POST paths, which run inference; includes the adapters' paths.
            file_paths: the application's static files.
            pages: handlers of further GET paths.
            check_room: functions by path that take a body; they raise `Overloaded` if it would be refused later.
            keys: API keys; each request that runs inference needs one.
            rate: limit for each key name, or without keys for each address.
            admin: the admin API, if there are admin keys.
            adapters: the application's paths in the languages of annotation tools.
            active: addresses that send work, noted here; others may share it.
            origins: check of the headers of POST requests.
        """
        self.app = app
        self.work_paths, self.file_paths, self._pages = work_paths, file_paths, pages
        self._limits, self.admission, self._keys, self._rate = limits, admission, keys, rate
        self._health, self.counts = health, counts
        self._health_read_at, self._last_health = -float("inf"), Health("starting")
        self._triton_metrics, self._check_room = triton_metrics, check_room or {}
        self._throttle, self._active_addresses = RefusalThrottle(), active or ActiveCallers()
        self._large_bodies = FairSemaphore(MAX_LARGE_BODIES, active=self._active_addresses)
        self._admin, self._adapters, self._origins = admin, adapters, origins or Origins()
        self.adapter_paths: Collection[str] = adapters.by_path if adapters else ()
        self._key_pages = (adapters.key_pages if adapters else frozenset()) | ({METRICS} if metrics_need_key else set())
        self.methods: Mapping[str, tuple[str, ...]] = {
            **dict.fromkeys([*pages, *file_paths, *LIVE, *READY, METRICS, *(adapters.pages if adapters else ())], READ),
            **dict.fromkeys(work_paths, WRITE),
            **(admin.methods if admin else {}),
        }
        self._known_paths = {"-", *self.methods, *(adapters.off if adapters else ())}  # "-": not HTTP

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection event."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        REQUEST_ID.set(request_id(scope["headers"]))
        ADDRESS.set(shown(address(scope)))
        path = scope["path"] if scope["path"] in self._known_paths else OTHER_PATH  # others may contain a key
        TARGET.set(f"{shown(scope['method'], 20)} {path}")
        REASON.set(AnswerReason())
        REFUSAL_LOG.summarise_ended()
        trace.get_current_span().set_attribute("mobile_sam.request_id", REQUEST_ID.get())
        answer = AnswerSender(self, scope["path"], send)
        body = Body(scope, receive, self.admission, self._large_bodies)
        try:
            await self._route(scope, receive, answer, body)
        except ClientDisconnected:
            if not answer.started:
                REASON.get().slug = "caller-left"
                answer.count(CLIENT_CLOSED_REQUEST)
        except Exception as error:
            if answer.started:
                raise
            await self._refuse(error, scope, receive, answer, body)
        finally:
            body.release()

    async def _route(self, scope: Scope, receive: Receive, send: AnswerSender, body: Body) -> None:
        if refusal := scope.get("extensions", {}).get(REFUSAL_EXTENSION):
            raise refusal
        _check_number_of_hosts(scope)
        path, method = scope["path"], scope["method"]
        methods = self.methods.get(path)
        if methods is None:
            raise UnknownPath.of(path, self._adapters.off.get(path) if self._adapters else None)
        if method not in methods:
            raise WrongMethod.of(path, methods, method)
        if method not in READ:
            self._origins.check(scope["headers"])
        if path in self._key_pages:
            self._authenticate(scope)
        if path in self.work_paths:
            await self._work(scope, receive, send, body)
        elif path in self._pages:
            await self._pages[path](scope, receive, send)
        elif path in LIVE:
            await PlainTextResponse("alive\n")(scope, receive, send)
        elif path in READY:
            await self._readiness()(scope, receive, send)
        elif path == METRICS:
            extra = health_metrics(self._health()) + await self._triton_metrics()
            await self.app(scope, receive, _append_to_body(send, extra))
        elif self._admin and path in self._admin.methods:
            await self._admin(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def error_response(self, path: str, problem: Problem) -> Response:
        """Return an error in the form of the path."""
        return self._adapters.error_response(path, problem) if self._adapters else problem_response(problem)

    def _authenticate(self, scope: Scope) -> str:
        """Return the name of the request's API key; empty where no key is needed."""
        return "" if self._keys is None else self._keys.name_of(scope["headers"])

    def _readiness(self) -> Response:
        """Return 200, or a problem while the service is not ready. Not logged: probes come every second or so."""
        health = self._health()
        if self.admission.stopping or health.stopping:
            return problem_response(Stopping(STOPPING_DETAIL).problem())
        if not health.ready:
            return problem_response(InferenceUnavailable(f"{health.state}: {health.reason}").problem())
        return PlainTextResponse("ready\n")

    def _recent_health(self) -> Health:
        """Return Triton's state, at most `MAX_HEALTH_AGE_S` old while it accepts requests: reading it takes a while."""
        now = time.monotonic()
        if now - self._health_read_at > MAX_HEALTH_AGE_S or not self._last_health.accepts_requests:
            self._health_read_at, self._last_health = now, self._health()
        return self._last_health

    async def _work(self, scope: Scope, receive: Receive, send: AnswerSender, body: Body) -> None:
        """Check a request that runs inference, and have the application answer it."""
        name = self._authenticate(scope)
        if self._rate is not None:
            await self._rate.check(f"key:{name}" if name else f"address:{address(scope)}")
        CALLER.set(name)
        caller = name or ADDRESS.get()
        self._throttle.note_request(caller)
        self._active_addresses.note(ADDRESS.get())
        self.admission.check(caller)
        health = self._recent_health()
        if health.stopping:
            raise Stopping(STOPPING_DETAIL)
        if not health.accepts_requests:
            raise InferenceUnavailable(f"the inference server is unavailable ({health.state}); retry later")
        if not all(value.isascii() for header, value in scope["headers"] if header == b"content-type"):
            # BentoML fails to decode it.
            raise UnsupportedMedia.of("bytes that are not ASCII")
        limits = self._limits
        data = [await body.read(limits.max_body_bytes, limits.body_timeout_s)]
        if check_room := self._check_room.get(scope["path"]):
            check_room(data[0])
        with self.admission.slot(caller) as send.start_answer:
            self.counts.set_in_progress(self.admission.in_progress)
            try:
                await run_application(
                    self.app,
                    scope,
                    data.pop(),
                    receive,
                    send,
                    timeout_s=limits.answer_timeout_s,
                    wait_aborted=self.admission.wait_aborted,
                )
            finally:
                self.counts.set_in_progress(self.admission.in_progress - 1)

    async def _refuse(self, error: Exception, scope: Scope, receive: Receive, send: Send, body: Body) -> None:
        # Only pages send an Origin, never the path's tool: the tool's form of errors may have the status 200.
        is_page = isinstance(error, ForeignPage) and any(name == b"origin" for name, _ in scope["headers"])
        form = problem_response if is_page else partial(self.error_response, scope["path"])
        response = form(problem_of(error))
        if isinstance(error, Overloaded) and (delay_s := self._throttle.delay_s(CALLER.get() or ADDRESS.get())):
            body.release()
            await asyncio.sleep(delay_s)
        # uvicorn reads and discards the rest of a body to keep the connection, which is too expensive for large ones.
        max_unread = min(LARGE_BODY_BYTES, self._limits.max_body_bytes)
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
        self._replaced = False

    async def __call__(self, message: Message) -> None:
        """Send a part of the answer."""
        if self._replaced:
            return
        if message["type"] == "http.response.start":
            if self.start_answer and (problem := self._problem_instead(message, self.start_answer)):
                self._replaced = True
                response = self._edge.error_response(self._path, problem)
                await self._start({**message, "status": response.status_code, "headers": response.raw_headers})
                await self._send({"type": "http.response.body", "body": response.body})
                return
            await self._start(message)
        else:
            await self._send(message)

    def count(self, status: int) -> None:
        """Count the answer under one of a bounded number of paths."""
        edge, path, reason = self._edge, self._path, REASON.get().slug
        label = STATIC if path in edge.file_paths else path if path in edge.methods else OTHER_PATH
        edge.counts.count_answer(label, status, reason)
        trace.get_current_span().set_attribute("mobile_sam.reason", reason)

    def _problem_instead(self, message: Message, start_answer: StartAnswer) -> Problem | None:
        """Return the problem to send instead of an answer that starts, if any."""
        status, headers = message["status"], {name.lower(): value for name, value in message.get("headers", ())}
        foreign = not headers.get(b"content-type", b"").startswith(MEDIA_TYPE.encode())
        if status < 400:
            try:
                if (length := headers.get(b"content-length")) is not None:
                    start_answer(int(length))
            except Overloaded as error:
                return problem_of(error)
        elif foreign and self._path not in self._edge.adapter_paths:
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
        self.count(message["status"])
        await self._send({**message, "headers": headers.raw})


def _check_number_of_hosts(scope: Scope) -> None:
    hosts = sum(name == b"host" for name, _ in scope["headers"])
    if hosts > 1 or (not hosts and scope["http_version"] == "1.1"):
        raise MalformedRequest(f"expected one Host header, got {hosts}")


def _append_to_body(send: Send, extra: bytes) -> Send:
    """Return a `send` that appends to the body of a successful answer."""
    appends = False

    async def appending(message: Message) -> None:
        nonlocal appends
        if message["type"] == "http.response.start":
            appends = message["status"] == 200
            if appends:
                headers = MutableHeaders(raw=list(message["headers"]))
                headers["Content-Length"] = str(int(headers["Content-Length"]) + len(extra))
                message = {**message, "headers": headers.raw}
        elif appends and not message.get("more_body", False):
            message = {**message, "body": message.get("body", b"") + extra}
        await send(message)

    return appending


async def run_application(
    app: ASGIApp,
    scope: Scope,
    body: bytes,
    receive: Receive,
    send: Send,
    *,
    timeout_s: float,
    wait_aborted: Callable[[], Awaitable[None]],
) -> None:
    """Run the application, and cancel its work once the answer is no longer needed.

    Args:
        app, scope, body: the application, the request and its body.
        receive, send: ASGI callables of the caller; the first one tells when it disconnects.
        timeout_s: time for the answer to start; the rest of the answer has no time limit.
        wait_aborted: returns when the service aborts its requests.

    Raises:
        ClientDisconnected: the caller disconnected before the answer was complete.
        InferenceTimeout: the answer did not start in time.
        Stopping: the service aborted the request before the answer started.
    """
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    del body  # the application frees it once it has read it
    started, complete = asyncio.Event(), False
    disconnected = asyncio.create_task(_wait_disconnected(receive))

    async def replay() -> Message:
        if pending:
            return pending.pop()
        await asyncio.wait([disconnected])
        return {"type": "http.disconnect"}

    async def watched(message: Message) -> None:
        nonlocal complete
        started.set()
        complete = complete or (message["type"] == "http.response.body" and not message.get("more_body", False))
        await send(message)

    work = asyncio.ensure_future(app(scope, replay, watched))
    aborted = asyncio.ensure_future(wait_aborted())
    ends = {work, disconnected, aborted}
    try:
        done, _ = await asyncio.wait(ends, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not done and started.is_set():
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if work in done or (complete and aborted not in done):
            await work
            return
        work.cancel()
        await asyncio.wait([work])
        if disconnected in done or started.is_set():
            raise ClientDisconnected
        if aborted in done:
            raise Stopping("the service is shutting down and could not finish this request in time")
        raise InferenceTimeout(f"no answer within {timeout_s:g} s")
    finally:
        for task in ends:
            task.cancel()


async def _wait_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
