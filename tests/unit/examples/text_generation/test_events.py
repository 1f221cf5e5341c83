"""What a Triton that streams sends is read as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from examples.text_generation.events import texts
from utils.errors import InferenceFailed, InferenceUnavailable, InvalidRequest

PIECES = [b'data: {"model_name":"m","text_output":"a"}\n\n', b'data: {"text_output":" b"}\n\n']


@asynccontextmanager
async def triton(status: int, *events: bytes, left: asyncio.Event | None = None) -> AsyncIterator[str]:
    """A server that sends these events, and then, if it is to tell that its caller has left, goes on with that."""

    async def send(request: web.Request) -> web.StreamResponse:
        assert await request.json() == {"text_input": "so far"}
        answer = web.StreamResponse(status=status)
        await answer.prepare(request)
        for event in events:
            await answer.write(event)
        try:
            while left:
                await answer.write(PIECES[0])
                await asyncio.sleep(0)
        except ConnectionError:
            assert left
            left.set()
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
    """The texts of these events, and what went wrong after them."""
    found: list[str] = []

    async def visit() -> None:
        async with triton(status, *events) as url:
            async for text in texts(url, {"text_input": "so far"}):
                found.append(text)

    try:
        asyncio.run(visit())
    except Exception as error:
        return found, error
    return found, None


def test_each_event_is_a_text():
    assert read(200, *PIECES) == (["a", " b"], None)


def test_an_event_may_come_in_parts():
    assert read(200, PIECES[0][:20], PIECES[0][20:]) == (["a"], None)


@pytest.mark.parametrize(
    ("status", "events", "found", "kind"),
    [
        pytest.param(
            400, [b'data: {"error":"seed: expected 0 to 9, got 10"}\n\n'], [], InvalidRequest, id="the caller's"
        ),
        pytest.param(200, [PIECES[0], b'data: {"error":"no more"}\n\n'], ["a"], InferenceFailed, id="on the way"),
        pytest.param(500, [b'{"error":"no such input"}'], [], InferenceFailed, id="outside of an event"),
    ],
)
def test_an_error_is_raised_where_it_comes(status, events, found, kind):
    texts_before, error = read(status, *events)
    assert (texts_before, type(error)) == (found, kind)


def test_nobody_at_the_address_is_an_error_that_passes():
    async def visit() -> None:
        async with triton(200) as url:
            pass
        async for _ in texts(url, {}):
            pass

    with pytest.raises(InferenceUnavailable):
        asyncio.run(visit())


def test_who_takes_no_more_texts_leaves():
    async def visit() -> None:
        left = asyncio.Event()
        async with triton(200, *PIECES, left=left) as url:
            found = texts(url, {"text_input": "so far"})
            assert await anext(found) == "a"
            await found.aclose()
            await asyncio.wait_for(left.wait(), 10)

    asyncio.run(visit())
