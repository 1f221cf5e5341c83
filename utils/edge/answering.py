"""Running the application for one request, with a time limit and cancellation."""

import asyncio
from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from utils.api.errors import InferenceTimeout, Stopping
from utils.edge.bodies import ClientDisconnected


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
