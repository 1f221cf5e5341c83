"""Reading of streamed events from Triton; tests/e2e/examples covers closed connections."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from benchmarks.service import free_ports
from examples.text_generation.events import texts
from utils.api.errors import InferenceFailed, InferenceUnavailable, InvalidRequest

PIECES = [b'data: {"model_name":"m","text_output":"a"}\n\n', b'data: {"text_output":" b"}\n\n']
INPUTS = {"text_input": "so far"}


def read(status: int, *events: bytes) -> tuple[list[str], Exception | None]:
    """Return the texts of a server's events, and the error that followed."""

    async def send(request: web.Request) -> web.StreamResponse:
        assert await request.json() == INPUTS
        answer = web.StreamResponse(status=status)
        await answer.prepare(request)
        for event in events:
            await answer.write(event)
        return answer

    async def receive() -> None:
        app = web.Application()
        app.router.add_post("/", send)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            async for text in texts(f"http://127.0.0.1:{runner.addresses[0][1]}/", INPUTS):
                found.append(text)
        finally:
            await runner.cleanup()

    found: list[str] = []
    try:
        asyncio.run(receive())
    except Exception as error:
        return found, error
    return found, None


@pytest.mark.parametrize(
    ("status", "events", "found", "kind"),
    [
        pytest.param(200, PIECES, ["a", " b"], type(None), id="pieces"),
        pytest.param(200, [PIECES[0][:20], PIECES[0][20:]], ["a"], type(None), id="event in parts"),
        pytest.param(400, [b'data: {"error":"seed: expected 0 to 9, got 10"}\n\n'], [], InvalidRequest, id="invalid"),
        pytest.param(200, [PIECES[0], b'data: {"error":"no more"}\n\n'], ["a"], InferenceFailed, id="after a piece"),
        pytest.param(500, [b'{"error":"no such input"}'], [], InferenceFailed, id="not an event"),
    ],
)
def test_events_yield_texts_until_an_error(status, events, found, kind):
    texts_before, error = read(status, *events)
    assert (texts_before, type(error)) == (found, kind)


def test_refused_connection_is_unavailable():
    async def receive() -> None:
        async for _ in texts(f"http://127.0.0.1:{free_ports(1)[0]}/", INPUTS):
            pass

    with pytest.raises(InferenceUnavailable):
        asyncio.run(receive())
