"""Reading of streamed events from Triton."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from examples.text_generation.events import texts
from utils.api.errors import InferenceFailed, InferenceUnavailable, InvalidRequest

PIECES = [b'data: {"model_name":"m","text_output":"a"}\n\n', b'data: {"text_output":" b"}\n\n']


@asynccontextmanager
async def triton(status: int, *events: bytes, disconnected: asyncio.Event | None = None) -> AsyncIterator[str]:
    """Run a server that sends the events; with `disconnected`, it keeps sending until the client disconnects."""

    async def send(request: web.Request) -> web.StreamResponse:
        assert await request.json() == {"text_input": "so far"}
        answer = web.StreamResponse(status=status)
        await answer.prepare(request)
        for event in events:
            await answer.write(event)
        try:
            while disconnected:
                await answer.write(PIECES[0])
                await asyncio.sleep(0)
        except ConnectionError:
            assert disconnected
            disconnected.set()
        return answer

    app = web.Application()
    app.router.add_post("/", send)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


def read(status: int, *events: bytes) -> tuple[list[str], Exception | None]:
    """Return the texts of the events, and the error that followed."""
    found: list[str] = []

    async def receive() -> None:
        async with triton(status, *events) as url:
            async for text in texts(url, {"text_input": "so far"}):
                found.append(text)

    try:
        asyncio.run(receive())
    except Exception as error:
        return found, error
    return found, None


def test_each_event_yields_a_text():
    assert read(200, *PIECES) == (["a", " b"], None)


def test_event_may_arrive_in_parts():
    assert read(200, PIECES[0][:20], PIECES[0][20:]) == (["a"], None)


@pytest.mark.parametrize(
    ("status", "events", "found", "kind"),
    [
        pytest.param(
            400, [b'data: {"error":"seed: expected 0 to 9, got 10"}\n\n'], [], InvalidRequest, id="invalid request"
        ),
        pytest.param(200, [PIECES[0], b'data: {"error":"no more"}\n\n'], ["a"], InferenceFailed, id="after a piece"),
        pytest.param(500, [b'{"error":"no such input"}'], [], InferenceFailed, id="not an event"),
    ],
)
def test_error_is_raised_after_the_texts_before_it(status, events, found, kind):
    texts_before, error = read(status, *events)
    assert (texts_before, type(error)) == (found, kind)


def test_refused_connection_is_unavailable():
    async def receive() -> None:
        async with triton(200) as url:
            pass
        async for _ in texts(url, {}):
            pass

    with pytest.raises(InferenceUnavailable):
        asyncio.run(receive())


def test_closing_the_generator_disconnects():
    async def receive() -> None:
        disconnected = asyncio.Event()
        async with triton(200, *PIECES, disconnected=disconnected) as url:
            stream = texts(url, {"text_input": "so far"})
            assert await anext(stream) == "a"
            await stream.aclose()
            await asyncio.wait_for(disconnected.wait(), 10)

    asyncio.run(receive())
