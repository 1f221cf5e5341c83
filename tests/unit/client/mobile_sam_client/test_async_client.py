"""`AsyncClient`: parity with `Client`, concurrency, cancellation."""

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
    FakeService,
    json_reply,
    segment_reply,
)

CLICK: dict[str, Any] = {"pos_coords": [[1, 2]]}


def public_methods(kind) -> dict[str, inspect.Signature]:
    functions = inspect.getmembers(kind, inspect.isfunction)
    return {name: inspect.signature(function) for name, function in functions if name[0] != "_" or name == "__init__"}


def test_both_clients_have_the_same_methods_and_parameters():
    asynchronous, blocking = public_methods(AsyncClient), public_methods(Client)
    asynchronous["close"] = asynchronous.pop("aclose")
    parameters = [list(signatures.pop("__init__").parameters) for signatures in (asynchronous, blocking)]
    assert asynchronous == blocking
    assert parameters[0] == parameters[1]
    assert all(inspect.iscoroutinefunction(getattr(AsyncClient, name)) for name in asynchronous if name != "close")


def test_calls_run_concurrently():
    service = FakeService()
    service.reply_with(segment_reply())
    started = 0
    all_started = asyncio.Event()

    async def handler(request: httpx.Request) -> httpx.Response:
        nonlocal started
        started += 1
        if started == 3:
            all_started.set()
        await all_started.wait()  # would hang if the requests were sequential
        return service(request)

    async def ask() -> None:
        async with AsyncClient(transport=httpx.MockTransport(handler)) as client:
            files = [b"one", b"two", b"three"]
            found = await asyncio.gather(*(client.segment(file, **CLICK) for file in files))
            assert [segmentation.area for segmentation in found] == [3, 3, 3]

    asyncio.run(ask())


def test_cancelled_call_closes_the_response():
    started = asyncio.Event()
    streams = []

    class Endless(httpx.AsyncByteStream):
        closed = False

        async def __aiter__(self):
            yield b'{"done": 0, "total": 2}\n'
            started.set()
            await asyncio.Event().wait()

        async def aclose(self) -> None:
            self.closed = True

    def handler(request: httpx.Request) -> httpx.Response:
        streams.append(Endless())
        return httpx.Response(200, stream=streams[-1])

    async def ask() -> None:
        async with AsyncClient(transport=httpx.MockTransport(handler)) as client:
            task = asyncio.create_task(client.everything(FILE))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(ask())
    assert streams[0].closed


def test_closed_client_sends_no_requests():
    service = FakeService()
    service.reply_with(json_reply(IMAGE))

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
    assert len(service.requests) == 2


def test_repr_shows_only_the_url(make, kind):
    client = make(FakeService(), api_key="the-secret-key")
    shown = repr(client.client if kind is AsyncClient else client)
    assert shown == f"{kind.__name__}('http://127.0.0.1:3000')"
