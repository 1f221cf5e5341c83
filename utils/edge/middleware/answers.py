"""What happens to every answer on its way to the caller: headers, metrics, and a bounded rest."""

from opentelemetry import trace
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from utils.edge.admission import SMALL_ANSWER_BYTES, Admission
from utils.edge.bodies import ClientDisconnected
from utils.edge.paths import Paths
from utils.edge.request import request_of
from utils.observability.context import REASON, RECORD, REQUEST_ID
from utils.observability.metrics import Counts

SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    # Both together allow the page's decoder more than one thread.
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    # Swagger UI and the page at /ui need their own files, WebAssembly, inline styles, images from
    # data and blob URLs.
    "Content-Security-Policy": "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}
CLIENT_CLOSED_REQUEST = 499
"""nginx's status for a caller that disconnected; used in metrics only."""


class AnswerHeadersMiddleware:
    """Adds the request's id, the security headers and those that caches and connections obey."""

    def __init__(self, app: ASGIApp, paths: Paths, admission: Admission) -> None:
        """Store the paths, of which answers of work are not cached, and what tells of a stop."""
        self.app, self._paths, self._admission = app, paths, admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have the request answered with these headers."""
        is_work = request_of(scope).route in self._paths.work

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = self._headers(message, is_work=is_work)
                message = {**message, "headers": headers.raw}
            await send(message)

        await self.app(scope, receive, send_with_headers)

    def _headers(self, message: Message, *, is_work: bool) -> MutableHeaders:
        headers = MutableHeaders(raw=list(message.get("headers", [])))
        for name, value in SECURITY_HEADERS.items():
            headers.setdefault(name, value)
        headers["X-Request-ID"] = REQUEST_ID.get()
        if is_work:
            headers.setdefault("Cache-Control", "no-store")
        if self._admission.stopping:
            headers["Connection"] = "close"
        return headers


class AnswerCountsMiddleware:
    """Counts each answer by path, status and reason, and notes them for traces and the log."""

    def __init__(self, app: ASGIApp, counts: Counts, paths: Paths) -> None:
        self.app, self._counts, self._paths = app, counts, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have the request answered, or count a caller who has left before that."""
        route = request_of(scope).route
        started = False

        async def send_counted(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self._count(route, message["status"])
                if record := RECORD.get():
                    record.status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_counted)
        except ClientDisconnected:
            # An answer that has started is counted already.
            if not started:
                REASON.get().slug = "caller-left"
                self._count(route, CLIENT_CLOSED_REQUEST)

    def _count(self, route: str, status: int) -> None:
        reason = REASON.get().slug
        self._counts.count_answer(self._paths.label(route), status, reason)
        trace.get_current_span().set_attribute("mobile_sam.reason", reason)


class LastPieceMiddleware:
    """Keeps a request in progress until its caller has read most of the answer's last piece."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have the request answered; a large last piece is followed by an empty one."""

        async def send_and_wait(message: Message) -> None:
            is_last = not message.get("more_body", False)
            if is_last and len(message.get("body", b"")) > SMALL_ANSWER_BYTES:
                # uvicorn waits for the reader before it takes the next message.
                await send({**message, "more_body": True})
                message = {"type": message["type"], "body": b""}
            await send(message)

        await self.app(scope, receive, send_and_wait)
