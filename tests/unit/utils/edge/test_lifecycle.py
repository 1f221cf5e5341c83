"""Shutdown of an API worker, and the end of its stalled connections."""

import asyncio
import errno
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from tests.unit.utils.edge.fakes import FakeTransport
from utils.edge import lifecycle
from utils.edge.admission import Admission
from utils.edge.lifecycle import (
    ANSWER_STALL_TIMEOUT_S,
    HEADERS_TIMEOUT_S,
    MIN_CONNECTIONS,
    RESERVED_DESCRIPTORS,
    Sweeper,
    WorkerLifecycle,
    allowed_connections,
    stop_listening,
    sweep_forever,
)
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
        connection = SimpleNamespace(transport=SimpleNamespace(abort=partial(self._note, "connection aborted")))
        worker = WorkerLifecycle(self.file, admission, self._disconnect, 10)
        worker._server = SimpleNamespace(server_state=SimpleNamespace(connections=[connection]))
        worker._lock = mock.Mock(release=partial(self._note, "lock released"))
        if self.orphan:
            worker._parent = -1
        admission.stop()
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
        await admission.wait_aborted()
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


async def test_shutdown_aborts_requests_leaves_triton_and_closes_in_this_order(shared):
    assert await Shutdown(shared, requests=True).run() == [
        "request aborted",
        "disconnected",
        "lock released",
        "port closed",
        "closed",
        "connection aborted",
    ]


async def test_single_stopping_worker_closes_first_and_keeps_triton_for_the_others(shared):
    assert await Shutdown(shared, service_stops=False).run() == ["closed", "connection aborted"]


async def test_orphaned_worker_frees_the_port_first(shared):
    events = await Shutdown(shared, orphan=True, requests=True).run()
    assert events == ["closed", "request aborted", "connection aborted"]


@pytest.mark.parametrize("failing", ["disconnected", "lock released", "port closed", "closed"])
async def test_failing_step_of_a_shutdown_is_logged_and_the_others_run(shared, log, failing):
    undisturbed = await Shutdown(shared).run()
    assert failing in undisturbed
    assert await Shutdown(shared, failing=failing).run() == undisturbed
    (error,) = [message for level, message in log() if level == "ERROR"]
    assert "a step of the shutdown failed, the next ones run" in error


@pytest.mark.parametrize("broken", ["health.read_health", "Admission.abort_in_flight"])
async def test_shutdown_whose_requests_cannot_be_finished_still_ends(shared, log, monkeypatch, broken):
    undisturbed = await Shutdown(shared).run()

    def fail(_):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(f"utils.edge.lifecycle.{broken}", fail)
    assert await Shutdown(shared).run() == undisturbed
    assert [level for level, _ in log()].count("ERROR") == (2 if "health" in broken else 1)


def test_worker_that_does_not_end_is_killed():
    hung = "from utils.edge.lifecycle import kill_process_after; import time; kill_process_after(0.1); time.sleep(600)"
    ended = subprocess.run([sys.executable, "-c", hung], capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1
    assert "the worker has not ended within 0.1 s, it is killed" in ended.stderr


class Connection:
    """A connection with the attributes of uvicorn's: without a request (None), or with one that is answered or not."""

    def __init__(self, *, answered: bool | None = None) -> None:
        self.cycle = None if answered is None else SimpleNamespace(response_complete=answered)
        self.transport = FakeTransport()


def sweeper_of(*connections: Connection) -> Sweeper:
    return Sweeper(SimpleNamespace(server_state=SimpleNamespace(connections=set(connections))))


@pytest.mark.parametrize("answered", [None, True], ids=["first-request", "second-request"])
def test_connection_with_an_incomplete_request_is_closed(answered):
    slow = Connection(answered=answered)
    sweeper = sweeper_of(slow)
    assert [sweeper.sweep(now) for now in (0, HEADERS_TIMEOUT_S, HEADERS_TIMEOUT_S + 1)] == [0, 0, 1]
    assert slow.transport.aborted


def test_connection_with_a_request_in_progress_stays_open():
    sweeper = sweeper_of(Connection(answered=False))
    assert [sweeper.sweep(now) for now in (0, 1000, 2000)] == [0, 0, 0]


def test_completed_request_restarts_the_timeout():
    kept = Connection(answered=True)
    sweeper = sweeper_of(kept)
    sweeper.sweep(0)
    kept.cycle = SimpleNamespace(response_complete=True)
    assert sweeper.sweep(HEADERS_TIMEOUT_S + 1) == 0
    assert sweeper.sweep(2 * HEADERS_TIMEOUT_S + 2) == 1


def test_unread_answer_is_dropped_and_a_slowly_read_one_is_not():
    unread, slow = Connection(answered=True), Connection(answered=True)
    unread.transport.waiting = slow.transport.waiting = 1_000_000
    sweeper = sweeper_of(unread, slow)
    sweeper.sweep(0)
    slow.transport.waiting -= 1
    assert sweeper.sweep(ANSWER_STALL_TIMEOUT_S + 1) == 1
    assert (unread.transport.aborted, slow.transport.aborted) == (True, False)


def test_sweeper_forgets_closed_connections():
    sweeper = sweeper_of(Connection())
    sweeper.sweep(0)
    sweeper._server.server_state.connections.clear()
    sweeper.sweep(1)
    assert not sweeper._seen


async def test_unsupported_server_is_left_alone_with_a_warning(log):
    await sweep_forever(None)
    assert log() == [("WARNING", "cannot inspect this server's connections: stalled ones stay open")]


def test_port_refuses_connections_in_all_listening_processes():
    with socket.create_server(("127.0.0.1", 0)) as first, first.dup() as other:
        stop_listening(SimpleNamespace(servers=[SimpleNamespace(sockets=[other])]))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(first.getsockname(), timeout=1)


def test_few_descriptors_reduce_the_number_of_connections(monkeypatch, caplog):
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 256))
    allowed = allowed_connections(1000)
    assert MIN_CONNECTIONS <= allowed <= 256 - RESERVED_DESCRIPTORS
    assert "instead of 1000: this process is limited to 256 file descriptors" in caplog.text
    assert allowed_connections(MIN_CONNECTIONS) == MIN_CONNECTIONS
