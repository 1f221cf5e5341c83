"""One request to a single step of the edge."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from utils.edge.bodies import Body
from utils.edge.paths import READ, WRITE, Paths
from utils.edge.request import KEY, EdgeRequest, request_of
from utils.inference.ending import Ending
from utils.inference.shares import Turns
from utils.observability.context import ADDRESS, REASON, AnswerReason
from utils.observability.routes import route_of

PATHS = Paths(
    methods={"/work": WRITE, "/page": READ, "/static_content/a.css": READ},
    work={"/work"},
    files={"/static_content/a.css"},
    need_key={"/work"},
    off={"/v1/tool": "tool"},
)


@dataclass
class Application:
    """What a step wraps: it records the requests that reach it, and answers or fails."""

    status: int = 200
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=lambda: [b"answer"])
    error: Exception | None = None
    """Raised in place of an answer, or after the pieces if there are any."""
    requests: list[EdgeRequest] = field(default_factory=list)
    contents: list[bytes] = field(default_factory=list)
    """Bodies that were read by the time the requests arrived."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request = request_of(scope)
        self.requests.append(request)
        self.contents.append(request.content)
        if self.pieces:
            start = {"type": "http.response.start", "status": self.status}
            await send({**start, "headers": self.headers})
        for number, piece in enumerate(self.pieces, 1):
            more = number < len(self.pieces) or self.error is not None
            await send({"type": "http.response.body", "body": piece, "more_body": more})
        if self.error is not None:
            raise self.error


def scope_of(path: str, method: str, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    """Return the scope of a request, as the server passes it."""
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": headers,
        "client": ("10.0.0.1", 1),
    }


async def ask(
    step: ASGIApp,
    path: str = "/work",
    method: str = "POST",
    *,
    headers: list[tuple[bytes, bytes]] | None = None,
    body: list[bytes] | None = None,
    first: bool = False,
) -> list[dict[str, Any]]:
    """Send a request to a step, in a context of its own, and return the messages of the answer.

    Args:
        step: a step of the edge.
        path, method, headers: the request's head.
        body: pieces of its body; then the caller waits.
        first: whether the step is the first one, which makes what the others share.
    """
    scope = scope_of(path, method, headers or [])
    pieces = [b""] if body is None else list(body)
    answer: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if not pieces:
            await asyncio.Event().wait()
        piece = pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

    async def send(message: Any) -> None:
        answer.append(dict(message))

    async def call() -> None:
        if first:
            await step(scope, receive, send)
            return
        ADDRESS.set("10.0.0.1")
        REASON.set(AnswerReason())
        with Ending() as ending:
            request = EdgeRequest(
                route_of(scope), Body(scope, receive, Turns(2, name="large bodies"), "10.0.0.1")
            )
            request.ending = ending
            scope[KEY] = request
            await step(scope, receive, send)

    await asyncio.create_task(call())
    return answer


def headers_of(answer: list[dict[str, Any]]) -> dict[str, str]:
    """Return the headers of an answer."""
    return {name.decode().lower(): value.decode() for name, value in answer[0]["headers"]}


def body_of(answer: list[dict[str, Any]]) -> bytes:
    """Return the body of an answer."""
    return b"".join(message["body"] for message in answer[1:])
