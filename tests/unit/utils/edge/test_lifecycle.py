"""Shutdown of an API worker, and the end of its stalled connections."""

import asyncio
import errno
import socket
import time
from types import SimpleNamespace

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
    ignore_new_connections,
    stop_listening,
    sweep_forever,
)
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


def test_waiting_connections_are_accepted_while_new_ones_are_ignored():
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as late:
        server = SimpleNamespace(servers=[SimpleNamespace(sockets=[listening])])
        with socket.create_connection(listening.getsockname()) as waiting:
            ignore_new_connections(server)
            late.setblocking(False)
            assert late.connect_ex(listening.getsockname()) == errno.EINPROGRESS
            accepted, _ = listening.accept()
            with accepted:
                accepted.sendall(b"answer")
                assert waiting.recv(6) == b"answer"
        listening.settimeout(0.1)
        with pytest.raises(TimeoutError):
            listening.accept()
