"""Connections that get nowhere."""

from __future__ import annotations

import asyncio
import logging
import socket
from types import SimpleNamespace

import pytest

from utils.edge.connections import ANSWER_SECONDS, HEADERS_SECONDS, Sweeper, stop_listening, sweep


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
