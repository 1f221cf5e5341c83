"""Limits on connections."""

import asyncio
import errno
import socket
from types import SimpleNamespace

import pytest

from utils.edge.connections import (
    ANSWER_STALL_TIMEOUT_S,
    HEADERS_TIMEOUT_S,
    MIN_CONNECTIONS,
    RESERVED_DESCRIPTORS,
    Connections,
    Sweeper,
    allowed_connections,
    ignore_new_connections,
    stop_listening,
    sweep_forever,
)


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.waiting, self.aborted = 0, False

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def abort(self) -> None:
        self.aborted = True


class Connection:
    """A connection with the attributes of uvicorn's: without a request (None), or with one that is answered or not."""

    def __init__(self, *, answered: bool | None = None) -> None:
        self.cycle = None if answered is None else SimpleNamespace(response_complete=answered)
        self.transport = Transport()


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


def open_connections(connections: Connections, *addresses: str) -> list[Transport]:
    made = [Transport() for _ in addresses]
    assert all(connections.add(connection, address) for connection, address in zip(made, addresses, strict=True))
    return made


def test_new_connection_beyond_the_limit_replaces_the_longest_waiting_one():
    connections = Connections(4)
    first, second, third, fourth = open_connections(connections, "10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2")
    connections.mark_busy(first)
    connections.mark_waiting(first)  # now the last one
    open_connections(connections, "10.0.0.3", "10.0.0.4")
    assert [connection.aborted for connection in (first, second, third, fourth)] == [False, True, True, False]
    assert len(connections) == 4


def test_one_address_gets_half_of_the_connections():
    connections = Connections(6)
    (other,) = open_connections(connections, "10.0.0.9")
    flood = open_connections(connections, *[f"2001:db8::{number:x}" for number in range(1, 11)])  # one /64 network
    assert [connection.aborted for connection in flood] == [True] * 7 + [False] * 3
    assert not other.aborted


def test_marking_a_waiting_connection_again_keeps_its_age():
    connections = Connections(4)
    first, second, *_ = open_connections(connections, "1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4")
    connections.mark_waiting(first)
    open_connections(connections, "1.1.1.5")
    assert (first.aborted, second.aborted) == (True, False)


def test_new_connection_is_refused_and_logged_once_if_none_is_waiting(log):
    connections = Connections(2)
    for connection in open_connections(connections, "1.1.1.1", "1.1.1.2"):
        connections.mark_busy(connection)
    assert not any(connections.add(Transport(), "1.1.1.3") for _ in range(100))
    assert len(connections) == 2
    assert log() == [("INFO", "too many connections (at most 2); closed the new one")]


def test_closed_connections_leave_no_state():
    connections = Connections(10)
    made = open_connections(connections, *[f"1.1.1.{number}" for number in range(5)])
    for connection in made:
        connections.remove(connection)
        connections.mark_waiting(connection)
        connections.mark_busy(connection)
    assert (len(connections), connections._counts, connections._waiting) == (0, {}, {"*": {}})


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
