"""The ASGI edge: what every request passes before BentoML routes it, and every answer on its way out.

- Bodies are read up to a cap; a larger one is answered 413 without being parsed.
- Errors that BentoML's routing answers in words of its own (unknown path, wrong method) leave as
  `application/problem+json`. BentoML's limits on time and concurrency lie outside of this middleware.
- What is being worked on for a caller who leaves is cancelled.
- `/` and `/docs.json` are the project's own Swagger page and OpenAPI document.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from utils.answers import problem_response
from utils.errors import MEDIA_TYPE, BodyTooLarge, Problem, UnsupportedMedia

CALLER_LEFT = 499
"""As nginx calls it; nobody sees it."""
REPLACED_HEADERS = {b"content-type", b"content-length"}


class Edge:
    """ASGI middleware around BentoML's application."""

    def __init__(self, app: ASGIApp, max_body_bytes: int, pages: Mapping[str, Response]) -> None:
        """Wrap an application.

        Args:
            app: the application.
            max_body_bytes: largest request body.
            pages: answers to GET of these paths, in place of the application's.
        """
        self.app = app
        self.max_body_bytes = max_body_bytes
        self.pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection event of ASGI."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if not all(value.isascii() for name, value in scope["headers"] if name == b"content-type"):
            # What stands behind the edge fails to decode it.
            error = UnsupportedMedia("expected Content-Type application/json, got bytes that are not ASCII")
            await problem_response(error.problem())(scope, receive, send)
            return
        page = self.pages.get(scope["path"])
        if page is not None and scope["method"] in {"GET", "HEAD"}:
            await page(scope, receive, send)
            return
        try:
            body = await self._body(scope, receive)
        except BodyTooLarge as error:
            await problem_response(error.problem())(scope, receive, send)
            return
        if body is None:  # the caller left before the body was complete
            await _nobody(send)
            return
        if not await _until_gone(self.app, scope, body, receive, _as_problems(scope, receive, send)):
            await _nobody(send)

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        announced = dict(scope["headers"]).get(b"content-length", b"")
        if announced.isdigit() and int(announced) > self.max_body_bytes:
            raise BodyTooLarge.of(self.max_body_bytes, int(announced))
        chunks, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > self.max_body_bytes:
                raise BodyTooLarge.of(self.max_body_bytes)
            chunks.append(chunk)
            if not message.get("more_body", False):
                return b"".join(chunks)


async def _until_gone(app: ASGIApp, scope: Scope, body: bytes, receive: Receive, send: Send) -> bool:
    """Run the application, and cancel its work when the caller leaves before the answer is complete.

    Returns:
        Whether an answer was begun.
    """
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    started = answered = False
    gone = asyncio.create_task(_gone(receive))

    async def replay() -> Message:
        if pending:
            return pending.pop()
        await asyncio.wait([gone])
        return {"type": "http.disconnect"}

    async def watched(message: Message) -> None:
        nonlocal started, answered
        started = True
        answered = answered or (message["type"] == "http.response.body" and not message.get("more_body", False))
        await send(message)

    work = asyncio.ensure_future(app(scope, replay, watched))
    try:
        await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
        if not work.done() and not answered:
            work.cancel()
            await asyncio.wait([work])
        else:
            await work
    finally:
        gone.cancel()
        work.cancel()
    return started


async def _nobody(send: Send) -> None:
    """End the answer to a caller who left: BentoML's limit on time, outside of the edge, waits for a first message."""
    await send({"type": "http.response.start", "status": CALLER_LEFT, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def _gone(receive: Receive) -> None:
    """Returns when the caller has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _as_problems(scope: Scope, receive: Receive, send: Send) -> Send:
    """A `send` that turns an error which is no problem document into one."""
    replaced = False

    async def filtered(message: Message) -> None:
        nonlocal replaced
        if message["type"] == "http.response.start" and message["status"] >= 400:
            headers = {name.lower(): value for name, value in message["headers"]}
            if not headers.get(b"content-type", b"").startswith(MEDIA_TYPE.encode()):
                replaced = True
                problem = _plain_problem(message["status"], scope)
                kept = {
                    k.decode("latin-1"): v.decode("latin-1") for k, v in headers.items() if k not in REPLACED_HEADERS
                }
                await problem_response(replace(problem, headers=kept))(scope, receive, send)
        if not replaced:
            await send(message)

    return filtered


def _plain_problem(status: int, scope: Scope) -> Problem:
    phrase = HTTPStatus(status).phrase
    details = {
        404: f"expected a path of this service, got {scope['path'][:200]!r}; the page at / lists them",
        405: f"{scope['method']} is not a method of {scope['path'][:200]!r}",
    }
    slug = phrase.lower().replace(" ", "-")
    return Problem(status, slug, phrase, details.get(status, phrase))
