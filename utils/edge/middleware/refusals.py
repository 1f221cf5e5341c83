"""Answers to requests that end with an error."""

import asyncio

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from utils.api.answers import JSON_LINES, problem_line, problem_of, problem_response
from utils.edge.bodies import LARGE_BODY_BYTES, Body, ClientDisconnected
from utils.edge.limits import Limits
from utils.edge.request import request_of
from utils.errors import BodyTooLarge, ForeignPage, Overloaded, Stopping, TooManyRequests
from utils.inference.shares import RecentCallers
from utils.integrations.adapter import Adapters
from utils.observability.context import ADDRESS


class RefusalsMiddleware:
    """Answers the errors of all further steps, in the form that the caller's tool shows.

    An answer that has started cannot be replaced: a stream of JSON lines that others have ended
    (see `Ending`) gets the problem as its last line, and every other error is raised.
    """

    def __init__(
        self,
        app: ASGIApp,
        adapters: Adapters,
        active: RecentCallers,
        limits: Limits,
    ) -> None:
        """Store what decides on the form, the time and the connection of a refusal.

        Args:
            app: the further steps.
            adapters: annotation tools with their own forms of errors.
            active: addresses that send work.
            limits: of one request; more than a body may have is not read for a refusal.
        """
        self.app, self._adapters, self._active = app, adapters, active
        self._max_unread_bytes = min(LARGE_BODY_BYTES, limits.max_body_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have the request answered, with its error if there is one."""
        answer = _Answer(send)
        try:
            await self.app(scope, receive, answer)
        except ClientDisconnected:
            raise  # nobody reads a refusal
        except Exception as error:
            if not answer.started:
                await self._refuse(error, scope, receive, answer)
            elif isinstance(error, (Stopping, Overloaded)):
                await answer.end_lines(error)
            else:
                raise

    async def _refuse(self, error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
        response = self._response(error, scope)
        body = request_of(scope).body
        must_wait = isinstance(error, (Overloaded, TooManyRequests))
        if must_wait and self._active.has_others(ADDRESS.get()):
            # Callers that ignore Retry-After would take the event loop's time from the others.
            body.release()
            await asyncio.sleep(Overloaded.retry_after)
        if isinstance(error, BodyTooLarge) or self._much_is_unread(body):
            await _send_and_close(response, body, scope, receive, send)
        else:
            await response(scope, receive, send)

    def _response(self, error: Exception, scope: Scope) -> Response:
        # Only pages send an Origin, never the path's tool: the tool's form of errors may have the
        # status 200.
        has_origin = any(name == b"origin" for name, _ in scope["headers"])
        problem = problem_of(error)
        if isinstance(error, ForeignPage) and has_origin:
            return problem_response(problem)
        return self._adapters.error_response(scope["path"], problem)

    def _much_is_unread(self, body: Body) -> bool:
        if body.ended:
            return False
        return body.chunked or (body.content_length or 0) > self._max_unread_bytes


async def _send_and_close(
    response: Response,
    body: Body,
    scope: Scope,
    receive: Receive,
    send: Send,
) -> None:
    """Send an answer, discard the rest of the body, and have the connection closed.

    To keep a connection, uvicorn reads and discards the rest, which is too expensive for much.
    """
    response.headers["Connection"] = "close"

    async def send_unfinished(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "more_body": True}
        await send(message)

    await response(scope, receive, send_unfinished)
    await body.drain()
    await send({"type": "http.response.body", "body": b""})


class _Answer:
    """The `send` of one request, which knows how far its answer is."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False
        """True once the start of an answer was sent."""
        self._is_lines = False
        """Whether the answer is a stream of JSON lines."""
        self._is_between_lines = False
        """Whether such a stream has not ended, and the last sent line is complete."""

    async def __call__(self, message: Message) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            self.started = True
            self._is_lines = _is_json_lines(message)
            await self._send(message)
            return
        await self._send(message)
        body = message.get("body", b"")
        if self._is_lines and body:
            self._is_between_lines = body.endswith(b"\n")
        if not message.get("more_body", False):
            self._is_between_lines = False

    async def end_lines(self, error: Stopping | Overloaded) -> None:
        """End a stream of JSON lines with the problem, unless it was cancelled within a line."""
        line = problem_line(error)
        if self._is_between_lines:
            await self._send({"type": "http.response.body", "body": line})


def _is_json_lines(message: Message) -> bool:
    for name, value in message.get("headers", []):
        if name.lower() == b"content-type":
            return bool(value.startswith(JSON_LINES.encode()))
    return False
