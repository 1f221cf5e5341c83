"""What only callers with an event loop see, and that they miss nothing."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import httpx
import pytest

from mobile_sam_client import AsyncClient, Client
from tests.unit.client.mobile_sam_client.fake_service import (
    FILE,
    IMAGE,
    Service,
    says_json,
    segments,
)

CLICK: dict[str, Any] = {"pos_coords": [[1, 2]]}


def public(kind) -> dict[str, inspect.Signature]:
    functions = inspect.getmembers(kind, inspect.isfunction)
    return {name: inspect.signature(function) for name, function in functions if name[0] != "_" or name == "__init__"}


def test_both_clients_have_the_same_calls_with_the_same_arguments():
    ours, theirs = public(AsyncClient), public(Client)
    ours["close"] = ours.pop("aclose")
    transports = [signatures.pop("__init__").parameters for signatures in (ours, theirs)]
    assert ours == theirs
    names, others = (list(parameters) for parameters in transports)
    assert names == others
    assert all(inspect.iscoroutinefunction(getattr(AsyncClient, name)) for name in ours if name != "close")


def test_calls_run_side_by_side():
    service = Service()
    service.says(segments())
    begun = 0
    together = asyncio.Event()

    async def handler(request: httpx.Request) -> httpx.Response:
        nonlocal begun
        begun += 1
        if begun == 3:
            together.set()
        await together.wait()  # for ever, were they asked one by one
        return service(request)

    async def ask() -> None:
        async with AsyncClient(transport=httpx.MockTransport(handler)) as client:
            files = [b"one", b"two", b"three"]
            found = await asyncio.gather(*(client.segment(file, **CLICK) for file in files))
            assert [each.area for each in found] == [3, 3, 3]

    asyncio.run(ask())


def test_a_call_that_is_cancelled_ends_the_answer():
    begun = asyncio.Event()
    streams = []

    class Endless(httpx.AsyncByteStream):
        closed = False

        async def __aiter__(self):
            yield b'{"done": 0, "total": 2}\n'
            begun.set()
            await asyncio.Event().wait()

        async def aclose(self) -> None:
            self.closed = True

    def handler(request: httpx.Request) -> httpx.Response:
        streams.append(Endless())
        return httpx.Response(200, stream=streams[-1])

    async def ask() -> None:
        async with AsyncClient(transport=httpx.MockTransport(handler)) as client:
            task = asyncio.create_task(client.everything(FILE))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(ask())
    assert streams[0].closed


def test_a_client_that_is_closed_asks_no_more():
    service = Service()
    service.says(says_json(IMAGE))

    async def ask() -> None:
        async with AsyncClient(transport=httpx.MockTransport(service)) as client:
            await client.embed(FILE)
        with pytest.raises(RuntimeError, match="closed"):
            await client.embed(FILE)

    asyncio.run(ask())
    with Client(transport=httpx.MockTransport(service)) as client:
        client.embed(FILE)
    with pytest.raises(RuntimeError, match="closed"):
        client.embed(FILE)
    assert len(service.asked) == 2


def test_a_client_shows_its_url_alone(make, kind):
    client = make(Service(), api_key="the-secret-key")
    shown = repr(client.client if kind is AsyncClient else client)
    assert shown == f"{kind.__name__}('http://127.0.0.1:3000')"
