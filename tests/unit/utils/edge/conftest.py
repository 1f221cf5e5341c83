"""Redis for the counts of rates."""

from collections.abc import Iterator

import pytest

from tests.redis_server import RedisServer, redis_server
from utils.edge import redis_counts

LONG_TIMEOUT_S = 60


@pytest.fixture
def server(tmp_path, monkeypatch) -> Iterator[RedisServer]:
    """Redis with long timeouts, so that a loaded machine is not mistaken for a hanging Redis."""
    monkeypatch.setattr(redis_counts, "SOCKET_TIMEOUT_S", LONG_TIMEOUT_S)
    monkeypatch.setattr(redis_counts, "TIMEOUT_S", LONG_TIMEOUT_S)
    with redis_server(tmp_path) as running:
        yield running
