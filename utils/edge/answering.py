"""Runs the application for one request, and gives up when nobody waits for the answer or it takes too long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from utils.errors import InferenceTimeout, Stopping


class CallerLeft(Exception):
    """Nobody waits for the answer any more."""


async def answer(
    app: ASGIApp,
    scope: Scope,
    body: bytes,
    receive: Receive,
    send: Send,
    *,
    seconds: float,
    cut: Callable[[], Awaitable[None]],
) -> None:
    """Run the application, and cancel its work when there is no use for it.

    Args:
        app: the application.
        scope: the request.
        body: of the request.
        receive: tells when the caller leaves.
        send: takes the answer.
        seconds: that the answer may take to begin; then it may take as long as it needs.
        cut: returns when the service gives up what it is answering.

    Raises:
        CallerLeft: before the answer was complete.
        InferenceTimeout: it did not begin in time.
        Stopping: the service gave it up before it began.
    """
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    del body  # which the application lets go of when it has read it
    started, complete = asyncio.Event(), False
    gone = asyncio.create_task(_gone(receive))

    async def replay() -> Message:
        if pending:
            return pending.pop()
        await asyncio.wait([gone])
        return {"type": "http.disconnect"}

    async def watched(message: Message) -> None:
        nonlocal complete
        started.set()
        complete = complete or (message["type"] == "http.response.body" and not message.get("more_body", False))
        await send(message)

    work = asyncio.ensure_future(app(scope, replay, watched))
    over = asyncio.ensure_future(cut())
    ends = {work, gone, over}
    try:
        done, _ = await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not done and started.is_set():
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if work in done or (complete and over not in done):
            await work
            return
        work.cancel()
        await asyncio.wait([work])
        if gone in done or started.is_set():
            raise CallerLeft
        if over in done:
            raise Stopping("the service is stopping and could not finish this in time")
        raise InferenceTimeout(f"no answer within {seconds:g} s")
    finally:
        for task in ends:
            task.cancel()


async def _gone(receive: Receive) -> None:
    """Returns when the caller has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
