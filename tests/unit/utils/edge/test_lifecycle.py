"""Shutdown of an API worker."""

import asyncio
import time

import pytest

from utils.edge import lifecycle
from utils.edge.admission import Admission
from utils.edge.lifecycle import WorkerLifecycle
from utils.triton import health
from utils.triton.health import Health


@pytest.fixture(autouse=True)
def short_timeouts(monkeypatch):
    monkeypatch.setattr(lifecycle, "FINISH_TIMEOUT_S", 0.3)
    monkeypatch.setattr(lifecycle, "TRITON_STOP_TIMEOUT_S", 0.3)


@pytest.fixture
def shared(tmp_path):
    """File of the state that a service's processes share."""
    return tmp_path / "shared"


async def finish(file, admission: Admission, *, requests: bool, orphan: bool = False) -> tuple[list[str], float]:
    """Return the events of a shutdown and its duration; with `requests` one request never ends by itself."""
    events: list[str] = []

    async def disconnect() -> None:
        events.append("disconnected")

    worker = WorkerLifecycle(file, admission, disconnect, 10)
    worker._lock = health.RequestsLock(file)
    worker._server = None
    if orphan:
        worker._parent = -1
    admission.stop()
    request = None
    if requests:
        admission.in_progress += 1

        async def answer() -> None:
            await admission.wait_aborted()
            events.append("aborted")
            admission.in_progress -= 1

        request = asyncio.create_task(answer())
    began = time.monotonic()
    await worker._finish(lambda: events.append("closed"))
    seconds = time.monotonic() - began
    if request:
        await request
    worker._lock.release()
    return events, seconds


async def test_slow_request_is_aborted_at_the_timeout(shared):
    health.write_health(shared, Health("stopping"))
    events, seconds = await finish(shared, Admission(9, 9), requests=True)
    assert events == ["aborted", "disconnected", "closed"]
    assert seconds >= lifecycle.FINISH_TIMEOUT_S
    assert health.is_triton_unused(shared)


async def test_single_stopping_worker_closes_first_and_keeps_triton_for_the_others(shared):
    health.write_health(shared, Health("ready"))
    events, _ = await finish(shared, Admission(9, 9), requests=False)
    assert events == ["closed"]


async def test_orphaned_worker_frees_the_port_first(shared):
    health.write_health(shared, Health("stopping"))
    events, _ = await finish(shared, Admission(9, 9), requests=True, orphan=True)
    assert events[0] == "closed"
    assert "disconnected" not in events
