"""How an API worker ends."""

from __future__ import annotations

import asyncio
import time

import pytest

from utils import health
from utils.edge import lifecycle
from utils.edge.admission import Admission
from utils.edge.lifecycle import Lifecycle
from utils.health import Health


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(lifecycle, "FINISH_LIMIT", 0.3)
    monkeypatch.setattr(lifecycle, "TRITON_LIMIT", 0.3)


@pytest.fixture
def shared(tmp_path):
    """The file that the processes of a service share."""
    return tmp_path / "shared"


async def finish(file, admission: Admission, *, requests: bool, orphan: bool = False) -> tuple[list[str], float]:
    """What happened, in order, and how long it took; with `requests` there is one that never ends by itself."""
    events: list[str] = []

    async def disconnect() -> None:
        events.append("disconnected")

    worker = Lifecycle(file, admission, disconnect, 10)
    worker._lock = health.RequestsLock(file)
    worker._server = None
    if orphan:
        worker._parent = -1
    admission.stop()
    request = None
    if requests:
        admission.in_progress += 1

        async def answer() -> None:
            await admission.was_cut()
            events.append("given up")
            admission.in_progress -= 1

        request = asyncio.create_task(answer())
    began = time.monotonic()
    await worker._finish(lambda: events.append("closed"))
    seconds = time.monotonic() - began
    if request:
        await request
    worker._lock.release()
    return events, seconds


def test_a_request_that_takes_too_long_is_given_up_once_the_limit_is_over_and_not_later(short, shared):
    health.write_health(shared, Health("stopping"))
    limit = 0.3
    events, seconds = asyncio.run(finish(shared, Admission(9, 9), requests=True))
    assert events == ["given up", "disconnected", "closed"]
    assert seconds >= limit
    assert health.is_triton_unused(shared)


def test_the_limits_of_a_stop_fit_into_forty_seconds():
    assert lifecycle.FINISH_LIMIT + lifecycle.TRITON_LIMIT + 1 < 40


def test_one_worker_alone_closes_first_and_leaves_triton_to_the_others(short, shared):
    health.write_health(shared, Health("ready"))
    events, _ = asyncio.run(finish(shared, Admission(9, 9), requests=False))
    assert events == ["closed"]


def test_a_worker_whose_service_was_killed_frees_the_port_first(short, shared):
    health.write_health(shared, Health("stopping"))
    events, _ = asyncio.run(finish(shared, Admission(9, 9), requests=True, orphan=True))
    assert events[0] == "closed"
    assert "disconnected" not in events
