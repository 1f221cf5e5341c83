"""Refusals of requests by their head, path and method."""

from starlette.types import ASGIApp, Receive, Scope, Send

from utils.edge.connections import MAX_FIELDS, MAX_HEAD_BYTES
from utils.edge.paths import Paths
from utils.edge.request import request_of
from utils.errors import HeadTooLarge, MalformedRequest, UnknownPath, WrongMethod

HEAD_PARTS = "a request line, headers and trailers"
HEAD_TOO_LARGE = f"expected {HEAD_PARTS} of at most {MAX_HEAD_BYTES} bytes together, got more"


class HeadLimitMiddleware:
    """Refuses a request whose head is too large, or gives the body two lengths."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, unless its head is refused."""
        check_head(scope)
        await self.app(scope, receive, send)


class KnownPathsMiddleware:
    """Refuses unknown paths and methods: BentoML would create a metric for each."""

    def __init__(self, app: ASGIApp, paths: Paths) -> None:
        self.app, self._paths = app, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, unless the service has no such path or method."""
        route, method = request_of(scope).route, scope["method"]
        methods = self._paths.methods.get(route)
        if methods is None:
            raise UnknownPath.from_path(scope["path"], self._paths.off.get(route))
        if method not in methods:
            raise WrongMethod(route, methods, method)
        await self.app(scope, receive, send)


def check_head(scope: Scope) -> None:
    """Check the head of a request.

    Raises:
        HeadTooLarge: it has too many bytes or fields.
        MalformedRequest: it has two lengths of the body: a proxy may have read the other one.
    """
    headers = scope["headers"]
    if len(headers) > MAX_FIELDS:
        raise HeadTooLarge(f"expected at most {MAX_FIELDS} headers and trailers together, got more")
    size = len(scope.get("raw_path", b"")) + len(scope.get("query_string", b""))
    size += sum(len(name) + len(value) for name, value in headers)
    if size > MAX_HEAD_BYTES:
        raise HeadTooLarge(HEAD_TOO_LARGE)
    if {b"content-length", b"transfer-encoding"} <= dict(headers).keys():
        raise MalformedRequest("expected either Content-Length or Transfer-Encoding, got both")
