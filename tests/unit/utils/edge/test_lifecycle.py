"""Shutdown of an API worker."""

import asyncio
import errno
import os
import socket
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from utils.edge import lifecycle
from utils.edge.admission import Admission
from utils.edge.lifecycle import WorkerLifecycle, stop_listening
from utils.errors import Stopping
from utils.triton import health
from utils.triton.health import Health


@pytest.fixture(autouse=True)
def short_timeouts(monkeypatch):
    for timeout in ("FINISH_TIMEOUT_S", "TRITON_STOP_TIMEOUT_S", "CLOSE_TIMEOUT_S"):
        monkeypatch.setattr(lifecycle, timeout, 0.1)


@pytest.fixture
def shared(tmp_path):
    """File of the state that a service's processes share."""
    return tmp_path / "shared"


@dataclass
class Shutdown:
    """A shutdown of a worker, and what it did."""

    file: Path
    service_stops: bool = True
    orphan: bool = False
    requests: bool = False
    """Whether there is a request that never ends by itself."""
    failing: str = ""
    """Event whose step fails."""
    events: list[str] = field(default_factory=list)

    async def run(self) -> list[str]:
        """Run the shutdown and return its events."""
        health.write_health(self.file, Health("stopped" if self.service_stops else "ready"))
        admission = Admission(9, 9)
        connection = SimpleNamespace(
            transport=SimpleNamespace(abort=partial(self._note, "connection aborted"))
        )
        worker = WorkerLifecycle(self.file, admission, self._disconnect, 10, os.getppid())
        worker._server = mock.Mock(**{"server_state.connections": [connection]})
        worker._lock = mock.Mock(close=partial(self._note, "lock released"))
        if self.orphan:
            worker.parent = -1
        admission.stop(10)
        request = None
        if self.requests:
            admission.in_progress += 1
            request = asyncio.create_task(self._answer(admission))
        with mock.patch.object(lifecycle, "stop_listening", self._refuse):
            await worker._shut_down(partial(self._note, "closed"))
        if request:
            await request
        return self.events

    async def _answer(self, admission: Admission) -> None:
        try:
            with admission.endable("too late"):
                await asyncio.Event().wait()
        except Stopping:
            admission.in_progress -= 1
        self._note("request aborted")

    async def _disconnect(self) -> None:
        self._note("disconnected")

    def _refuse(self, _: object) -> None:
        self._note("port closed")

    def _note(self, event: str) -> None:
        self.events.append(event)
        if event == self.failing:
            raise OSError(errno.EPERM, event)


LEAVING_TRITON = ["disconnected", "lock released", "port closed", "closed", "connection aborted"]


@pytest.mark.parametrize(
    ("options", "events"),
    [
        pytest.param({"requests": True}, ["request aborted", *LEAVING_TRITON], id="whole-service"),
        pytest.param(
            {"service_stops": False}, ["closed", "connection aborted"], id="one-worker-closes-first"
        ),
        pytest.param(
            {"orphan": True, "requests": True},
            ["closed", "request aborted", "connection aborted"],
            id="orphan",
        ),
    ],
)
async def test_shutdown_ends_requests_triton_and_connections_in_this_order(shared, options, events):
    assert await Shutdown(shared, **options).run() == events


@pytest.mark.parametrize("failing", LEAVING_TRITON[:-1])
async def test_failing_step_of_a_shutdown_is_logged_and_the_others_run(shared, log, failing):
    assert await Shutdown(shared, failing=failing).run() == LEAVING_TRITON
    (error,) = [message for level, message in log() if level == "ERROR"]
    assert "a step of the shutdown failed, the next ones run" in error


@pytest.mark.parametrize("broken", ["health.read_health", "Admission.abort_in_flight"])
async def test_shutdown_whose_requests_cannot_be_finished_still_ends(
    shared, log, monkeypatch, broken
):
    def fail(_):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(f"utils.edge.lifecycle.{broken}", fail)
    assert await Shutdown(shared).run() == LEAVING_TRITON
    assert [level for level, _ in log()].count("ERROR") == (2 if "health" in broken else 1)


def test_port_refuses_connections_in_all_listening_processes():
    with socket.create_server(("127.0.0.1", 0)) as first, first.dup() as other:
        stop_listening(SimpleNamespace(servers=[SimpleNamespace(sockets=[other])]))  # type: ignore[arg-type]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(first.getsockname(), timeout=60)
