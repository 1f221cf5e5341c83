"""The ASGI edge: what every request passes before BentoML routes it, and every answer on its way out.

In this order, each step before the work of the next:

1. A request gets an id; every answer carries it, and headers that keep browsers from misreading it.
   What is not valid HTTP, or has a head that is too large (`protocol.py`), ends here.
2. Paths and methods that the service does not have end here: BentoML would make a metric of each.
3. The Swagger page, `/docs.json` and the health paths are answered here, whatever the state of the models.
4. The caller: API key, rate.
5. The load: nothing new while the service stops, while Triton is away, or when as much waits as may.
6. The body, up to a cap and within a time limit.
7. BentoML, within a time limit, until the caller leaves. Errors in words of BentoML's own become
   `application/problem+json`.

BentoML's own limits on time and concurrency, which lie outside of this middleware, are off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from utils import spans
from utils.answers import PROBLEM_HEADER, REFUSALS, problem_of, problem_response
from utils.edge.admin import Admin
from utils.edge.admission import STOPS, Admission, Pace, Place
from utils.edge.answering import CallerLeft, answer
from utils.edge.bodies import LARGE_BYTES, Body, Gone
from utils.edge.callers import ADDRESS, CALLER, REQUEST_ID, TARGET, TRACE_ID, request_id
from utils.edge.counts import OTHER, Counts, health_metrics
from utils.edge.guard import Guard, address
from utils.edge.protocol import REFUSAL
from utils.errors import (
    MEDIA_TYPE,
    BodyTooLarge,
    InferenceUnavailable,
    MalformedRequest,
    Overloaded,
    Problem,
    Stopping,
    UnknownPath,
    UnsupportedMedia,
    WrongMethod,
)
from utils.health import Health
from utils.text import shown
from utils.turns import Turns

LIVE, READY, METRICS = ("/livez", "/healthz"), "/readyz", "/metrics"
READ, WRITE = ("GET", "HEAD"), ("POST",)
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    # What Swagger UI and the page at /ui need: their own files, styles in the page, pictures from memory.
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}
REPLACED_HEADERS = {b"content-type", b"content-length"}
STATIC = "/static_content"
LARGE_BODIES = 2
"""Large bodies that a worker reads at once: each takes the event loop's time from everybody."""
CALLER_LEFT = 499
"""As nginx calls it; nobody sees it."""


@dataclass(frozen=True)
class Limits:
    """Of one request."""

    body_bytes: int
    body_seconds: float
    """For all of the body to arrive."""
    answer_seconds: float
    """From the whole body to the beginning of the answer."""


class Edge:
    """ASGI middleware around BentoML's application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        work: frozenset[str],
        files: frozenset[str],
        pages: Mapping[str, ASGIApp],
        limits: Limits,
        guard: Guard,
        admission: Admission,
        health: Callable[[], Health],
        counts: Counts,
        check_room: Callable[[str, bytes], None] = lambda *_: None,
        triton_metrics: Callable[[], Awaitable[bytes]],
        metrics_need_key: bool = False,
        admin: Admin | None = None,
    ) -> None:
        """Wrap an application.

        Args:
            app: the application.
            work: its paths that take a POST and cost work.
            files: its paths that are plain files.
            pages: answers to GET of these paths, in place of the application's.
            limits: of one request.
            guard: who may ask, and how often.
            admission: how many at once.
            health: how Triton is.
            counts: is told of every answer.
            check_room: given path and body, raises `Overloaded` where such a request would have to be refused later.
            triton_metrics: what Triton has to add to `/metrics`.
            metrics_need_key: whether `/metrics` is for holders of a key alone.
            admin: the operators' paths, where there are operators.
        """
        self.app = app
        self.work, self.files, self._pages = work, files, pages
        self._limits, self._guard, self.admission = limits, guard, admission
        self._health, self.counts, self._metrics_need_key = health, counts, metrics_need_key
        self._triton_metrics, self._check_room = triton_metrics, check_room
        self._large_bodies, self._pace = Turns(LARGE_BODIES), Pace()
        self._admin, self._admin_methods = admin, admin.methods() if admin else {}
        reading = dict.fromkeys([*pages, *files, *LIVE, READY, METRICS], READ)
        self.methods: Mapping[str, tuple[str, ...]] = {**reading, **dict.fromkeys(work, WRITE), **self._admin_methods}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection event of ASGI."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        REQUEST_ID.set(request_id(scope["headers"]))
        ADDRESS.set(shown(address(scope)))
        TARGET.set(f"{shown(scope['method'], 20)} {shown(scope['path'], 200)}")
        REFUSALS.summarise_ended()
        TRACE_ID.set(spans.trace_id())
        spans.set_attribute(spans.REQUEST_ID, REQUEST_ID.get())
        outgoing = Outgoing(self, scope["path"], send)
        body = Body(scope, receive, self.admission, self._large_bodies)
        try:
            await self._route(scope, receive, outgoing, body)
        except (Gone, CallerLeft):
            if not outgoing.begun:
                outgoing.count(CALLER_LEFT, "caller-left")
        except Exception as error:
            if outgoing.begun:
                raise
            await self._refuse(error, scope, receive, outgoing, body)
        finally:
            body.let_go()

    async def _route(self, scope: Scope, receive: Receive, send: Send, body: Body) -> None:
        if refusal := scope.get("extensions", {}).get(REFUSAL):
            raise refusal
        hosts = sum(name == b"host" for name, _ in scope["headers"])
        if hosts > 1 or (not hosts and scope["http_version"] == "1.1"):
            raise MalformedRequest(f"expected one Host header, got {hosts}")
        path, method = scope["path"], scope["method"]
        methods = self.methods.get(path)
        if methods is None:
            raise UnknownPath.of(path)
        if method not in methods:
            raise WrongMethod.of(path, methods, method)
        if path in self.work:
            await self._take(scope, receive, send, body)
        elif path in self._pages:
            await self._pages[path](scope, receive, send)
        elif path in LIVE:
            await PlainTextResponse("alive\n")(scope, receive, send)
        elif path == READY:
            await self._readiness()(scope, receive, send)
        elif path == METRICS:
            if self._metrics_need_key:
                self._guard.name(scope)
            more = health_metrics(self._health()) + await self._triton_metrics()
            await self.app(scope, receive, _with_more(send, more))
        elif self._admin and path in self._admin_methods:
            await self._admin(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _readiness(self) -> Response:
        """Whether callers should be sent here, and if not, why. Not logged: it is asked every second or so."""
        health = self._health()
        if self.admission.stopping or health.stopping:
            return problem_response(Stopping(STOPS).problem())
        if not health.ready:
            return problem_response(InferenceUnavailable(f"{health.state}: {health.reason}").problem())
        return PlainTextResponse("ready\n")

    async def _take(self, scope: Scope, receive: Receive, send: Send, body: Body) -> None:
        """A request that costs work."""
        name = self._guard.name(scope)
        await self._guard.check_rate(scope, name)
        CALLER.set(name)
        caller = name or ADDRESS.get()
        self._pace.asks(caller)
        self.admission.check(caller)
        health = self._health()
        if health.stopping:
            raise Stopping(STOPS)
        if not health.accepts_requests:
            raise InferenceUnavailable(f"the inference server is not there: {health.state}; try again")
        if not all(value.isascii() for header, value in scope["headers"] if header == b"content-type"):
            # What stands behind the edge fails to decode it.
            raise UnsupportedMedia.of("bytes that are not ASCII")
        limits = self._limits
        data = [await body.read(limits.body_bytes, limits.body_seconds)]
        self._check_room(scope["path"], data[0])
        with self.admission.place(caller) as place:
            self.counts.progress(self.admission.in_progress)
            send = _as_problems(scope, receive, _bounded(scope, receive, send, place))
            cut = self.admission.was_cut
            try:
                await answer(self.app, scope, data.pop(), receive, send, seconds=limits.answer_seconds, cut=cut)
            finally:
                self.counts.progress(self.admission.in_progress - 1)

    async def _refuse(self, error: Exception, scope: Scope, receive: Receive, send: Send, body: Body) -> None:
        response = problem_response(problem_of(error))
        # It holds the frames of this request, which hold it: the collector of such cycles comes seldom.
        error.__traceback__ = None
        if isinstance(error, Overloaded) and (wait := self._pace.refusal(CALLER.get() or ADDRESS.get())):
            body.let_go()
            await asyncio.sleep(wait)
        # The server reads the rest of a body, forgets it, and keeps the connection. Of a large one it should not.
        few = min(LARGE_BYTES, self._limits.body_bytes)
        much_unread = not body.ended and (body.chunked or (body.announced or 0) > few)
        if not (isinstance(error, BodyTooLarge) or much_unread):
            await response(scope, receive, send)
            return
        response.headers["Connection"] = "close"

        async def all_but_the_end(message: Message) -> None:
            await send({**message, "more_body": True} if message["type"] == "http.response.body" else message)

        await response(scope, receive, all_but_the_end)
        await body.drain()
        await send({"type": "http.response.body", "body": b""})


class Outgoing:
    """The `send` of one request: adds headers to the answer, and counts it."""

    def __init__(self, edge: Edge, path: str, send: Send) -> None:
        self._edge, self._path, self._send = edge, path, send
        self.begun = False
        """Whether an answer is on its way."""

    async def __call__(self, message: Message) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            self.begun = True
            headers = MutableHeaders(raw=list(message.get("headers", [])))
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            headers["X-Request-ID"] = REQUEST_ID.get()
            if self._path in self._edge.work:
                headers.setdefault("Cache-Control", "no-store")
            if self._edge.admission.stopping:
                headers["Connection"] = "close"
            self.count(message["status"], headers.get(PROBLEM_HEADER, "ok"))
            del headers[PROBLEM_HEADER]
            message = {**message, "headers": headers.raw}
        await self._send(message)

    def count(self, status: int, reason: str) -> None:
        """Count the answer, by a path that is one of few."""
        edge, path = self._edge, self._path
        label = STATIC if path in edge.files else path if path in edge.methods else OTHER
        edge.counts.answered(label, status, reason)
        spans.set_attribute(spans.REASON, reason)


def _with_more(send: Send, more: bytes) -> Send:
    """A `send` that puts more behind the body of a successful answer."""
    adds = False

    async def longer(message: Message) -> None:
        nonlocal adds
        if message["type"] == "http.response.start":
            adds = message["status"] == 200
            if adds:
                headers = MutableHeaders(raw=list(message["headers"]))
                headers["Content-Length"] = str(int(headers["Content-Length"]) + len(more))
                message = {**message, "headers": headers.raw}
        elif adds and not message.get("more_body", False):
            message = {**message, "body": message.get("body", b"") + more}
        await send(message)

    return longer


def _bounded(scope: Scope, receive: Receive, send: Send, place: Place) -> Send:
    """A `send` that counts the bytes of a successful answer, or refuses it before it begins.

    Answers without a length are streams: their pieces wait for the reader one by one.
    """
    refused = False

    async def counted(message: Message) -> None:
        nonlocal refused
        if message["type"] == "http.response.start" and message["status"] < 400:
            length = MutableHeaders(raw=list(message["headers"])).get("Content-Length")
            try:
                if length is not None:
                    place.answers(int(length))
            except Overloaded as error:
                refused = True
                await problem_response(problem_of(error))(scope, receive, send)
        if not refused:
            await send(message)

    return counted


def _as_problems(scope: Scope, receive: Receive, send: Send) -> Send:
    """A `send` that turns an error which is no problem document into one."""
    replaced = False

    async def filtered(message: Message) -> None:
        nonlocal replaced
        if message["type"] == "http.response.start" and message["status"] >= 400:
            headers = {name.lower(): value for name, value in message["headers"]}
            if not headers.get(b"content-type", b"").startswith(MEDIA_TYPE.encode()):
                replaced = True
                phrase = HTTPStatus(message["status"]).phrase
                problem = Problem(message["status"], phrase.lower().replace(" ", "-"), phrase, phrase)
                kept = {
                    k.decode("latin-1"): v.decode("latin-1") for k, v in headers.items() if k not in REPLACED_HEADERS
                }
                await problem_response(replace(problem, headers=kept))(scope, receive, send)
        if not replaced:
            await send(message)

    return filtered
