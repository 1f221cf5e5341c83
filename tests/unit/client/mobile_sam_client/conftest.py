"""A service that answers as it is told to, and a client of either kind that asks it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mobile_sam_client import AsyncClient, Client
from mobile_sam_client._wire import AsyncWire, BlockingWire
from tests.unit.client.mobile_sam_client.fake_service import Reply, Service, client_of


@pytest.fixture(autouse=True)
def no_key(monkeypatch) -> None:
    """None of the person who runs the tests."""
    monkeypatch.delenv("MOBILE_SAM_API_KEY", raising=False)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture(params=[Client, AsyncClient])
def kind(request) -> Any:
    return request.param


@pytest.fixture
def make(kind) -> Iterator[Any]:
    """Makes clients of either kind; their calls are waited for."""
    made = []

    def client(handler: Reply, **settings: Any) -> Any:
        made.append(client_of(kind, handler, **settings))
        return made[-1]

    yield client
    for one in made:
        one.close()


@pytest.fixture
def client(make, service) -> Any:
    return make(service)


@pytest.fixture(autouse=True)
def waits(monkeypatch) -> list[float]:
    """What clients would have waited."""
    waited: list[float] = []

    async def wait(_: object, seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(BlockingWire, "wait", wait)
    monkeypatch.setattr(AsyncWire, "wait", wait)
    return waited
