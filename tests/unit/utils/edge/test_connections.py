"""Connections that get nowhere."""

from __future__ import annotations

import asyncio
import logging
import socket
from types import SimpleNamespace

import pytest

from utils.edge.connections import (
    ANSWER_SECONDS,
    HEADERS_SECONDS,
    MIN_CONNECTIONS,
    RESERVED_DESCRIPTORS,
    Connections,
    Sweeper,
    allowed_connections,
    stop_listening,
    sweep,
)


class Transport:
    def __init__(self) -> None:
        self.waiting, self.aborted = 0, False

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def abort(self) -> None:
        self.aborted = True


class Connection:
    """As uvicorn has it."""

    def __init__(self, cycle: SimpleNamespace | None) -> None:
        self.cycle, self.transport = cycle, Transport()


def connection(*, answered: bool | None = None) -> Connection:
    """Without a request, or with one that has been answered or has not."""
    return Connection(None if answered is None else SimpleNamespace(response_complete=answered))


def server_of(*connections) -> SimpleNamespace:
    return SimpleNamespace(server_state=SimpleNamespace(connections=set(connections)))


@pytest.mark.parametrize("answered", [None, True], ids=["no request at all", "half of a second one"])
def test_a_request_that_never_ends_is_given_up(answered):
    slow = connection(answered=answered)
    sweeper = Sweeper(server_of(slow))
    assert sweeper.sweep(0) == 0
    assert sweeper.sweep(HEADERS_SECONDS) == 0
    assert sweeper.sweep(HEADERS_SECONDS + 1) == 1
    assert slow.transport.aborted


def test_a_connection_that_is_being_worked_for_is_left_alone():
    busy = connection(answered=False)
    sweeper = Sweeper(server_of(busy))
    assert [sweeper.sweep(now) for now in (0, 1000, 2000)] == [0, 0, 0]


def test_a_request_in_between_begins_a_new_wait():
    kept = connection(answered=True)
    sweeper = Sweeper(server_of(kept))
    sweeper.sweep(0)
    kept.cycle = SimpleNamespace(response_complete=True)
    assert sweeper.sweep(HEADERS_SECONDS + 1) == 0
    assert sweeper.sweep(2 * HEADERS_SECONDS + 2) == 1


def test_an_answer_that_nobody_takes_is_given_up_and_a_slow_reader_is_not():
    deaf, slow = connection(answered=True), connection(answered=True)
    deaf.transport.waiting = slow.transport.waiting = 1_000_000
    sweeper = Sweeper(server_of(deaf, slow))
    sweeper.sweep(0)
    slow.transport.waiting -= 1
    assert sweeper.sweep(ANSWER_SECONDS + 1) == 1
    assert (deaf.transport.aborted, slow.transport.aborted) == (True, False)


def test_closed_connections_are_forgotten():
    server = server_of(connection())
    sweeper = Sweeper(server)
    sweeper.sweep(0)
    server.server_state.connections.clear()
    sweeper.sweep(1)
    assert not sweeper._seen


def test_another_server_is_left_alone_and_that_is_said(caplog):
    with caplog.at_level(logging.WARNING):
        asyncio.run(sweep(None))
    assert "cannot be looked at" in caplog.text


def test_a_port_refuses_in_all_processes_that_listen_on_it():
    with socket.create_server(("127.0.0.1", 0)) as first, first.dup() as other:
        stop_listening(SimpleNamespace(servers=[SimpleNamespace(sockets=[other])]))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(first.getsockname(), timeout=1)


class Waiting:
    """A connection that can be closed."""

    def __init__(self) -> None:
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


def opened(connections: Connections, *addresses: str) -> list[Waiting]:
    made = [Waiting() for _ in addresses]
    assert all(connections.add(connection, address) for connection, address in zip(made, addresses, strict=True))
    return made


def test_beyond_the_bound_the_connection_that_has_waited_longest_is_closed():
    connections = Connections(4)
    first, second, third, fourth = opened(connections, "10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2")
    connections.works(first)  # it is served ...
    connections.waits(first)  # ... and waits again, as the last one
    opened(connections, "10.0.0.3", "10.0.0.4")
    assert [connection.aborted for connection in (first, second, third, fourth)] == [False, True, True, False]
    assert len(connections) == 4


def test_an_address_has_half_of_the_connections_and_loses_its_own():
    connections = Connections(6)
    (other,) = opened(connections, "10.0.0.9")
    flood = opened(connections, *[f"2001:db8::{number:x}" for number in range(1, 11)])  # one network
    assert [connection.aborted for connection in flood] == [True] * 7 + [False] * 3
    assert not other.aborted


def test_waiting_once_more_does_not_make_a_connection_younger():
    connections = Connections(4)
    first, second, *_ = opened(connections, "1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4")
    connections.waits(first)
    opened(connections, "1.1.1.5")
    assert (first.aborted, second.aborted) == (True, False)


def test_where_none_waits_the_new_connection_is_refused_and_that_is_logged_once(caplog):
    connections = Connections(2)
    for connection in opened(connections, "1.1.1.1", "1.1.1.2"):
        connections.works(connection)
    with caplog.at_level(logging.INFO):
        assert not any(connections.add(Waiting(), "1.1.1.3") for _ in range(100))
    assert len(connections) == 2
    assert [record.getMessage() for record in caplog.records] == [
        "too many connections: expected at most 2; closed the new one"
    ]


def test_nothing_is_kept_of_connections_that_are_closed():
    connections = Connections(10)
    made = opened(connections, *[f"1.1.1.{number}" for number in range(5)])
    for connection in made:
        connections.remove(connection)
        connections.waits(connection)
        connections.works(connection)
    assert (len(connections), connections._counts, connections._waiting) == (0, {}, {"*": {}})


def test_connections_are_fewer_than_set_where_descriptors_are_short(monkeypatch, caplog):
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 256))
    allowed = allowed_connections(1000)
    assert MIN_CONNECTIONS <= allowed <= 256 - RESERVED_DESCRIPTORS
    assert "not 1000: this process may have 256 file descriptors" in caplog.text
    assert allowed_connections(MIN_CONNECTIONS) == MIN_CONNECTIONS
