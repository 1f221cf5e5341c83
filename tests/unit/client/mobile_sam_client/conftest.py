"""Fixtures: a fake service and clients of both kinds."""

from collections.abc import Iterator
from typing import Any

import pytest

from mobile_sam_client import AsyncClient, Client
from mobile_sam_client._wire import Wire
from tests.unit.client.mobile_sam_client.fake_service import FakeService, Reply, make_client


@pytest.fixture(autouse=True)
def no_settings_from_the_environment(monkeypatch) -> None:
    """Hide the URL and API key of the environment that runs the tests."""
    for name in ("MOBILE_SAM_API_KEY", "MOBILE_SAM_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def service() -> FakeService:
    return FakeService()


@pytest.fixture(params=[Client, AsyncClient])
def kind(request) -> Any:
    return request.param


@pytest.fixture
def make(kind) -> Iterator[Any]:
    """Factory of clients of either kind; calls return results, not coroutines."""
    clients = []

    def client(handler: Reply, **settings: Any) -> Any:
        clients.append(make_client(kind, handler, **settings))
        return clients[-1]

    yield client
    for one in clients:
        one.close()


@pytest.fixture
def client(make, service) -> Any:
    return make(service)


@pytest.fixture(autouse=True)
def waits(monkeypatch) -> list[float]:
    """Seconds that clients would have slept, per wait."""
    waited: list[float] = []

    async def sleep(_: object, seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(Wire, "sleep", sleep)
    return waited
