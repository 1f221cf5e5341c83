"""Connections of a real uvicorn server, with the edge around a fake application."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPResponse
from unittest.mock import Mock

import pytest
import uvicorn
from starlette.responses import JSONResponse, PlainTextResponse, Response
from uvicorn.server import ServerState

from harness import wait_until
from tests.unit.utils.edge.fakes import Clock, FakeCounts, make_edge
from utils.edge.admission import Admission
from utils.edge.connections import (
    HEADERS_TIMEOUT_S,
    MAX_FIELDS,
    MAX_HEAD_BYTES,
    MIN_CONNECTIONS,
    MIN_READ_BYTES,
    READ_WINDOW_S,
    RESERVED_DESCRIPTORS,
    BoundedProtocol,
    address,
    allowed_connections,
    install,
)
from utils.edge.limits import Limits

MIB = 2**20
MAX_BODY = 4 * MIB
LARGE_ANSWER = 8 * MIB
TIMEOUT_S = 60
PAGE = b"GET /page HTTP/1.1\r\nHost: a\r\n\r\n"


class Server:
    """A server on a free port in a thread."""

    def __init__(self) -> None:
        self.counts, self.admission = FakeCounts(), Admission(4, 8 * MAX_BODY, 8 * MAX_BODY)
        self.ended: list[str] = []
        edge = make_edge(
            self.app,
            work_paths=frozenset({"/echo", "/large", "/slow"}),
            pages={"/page": PlainTextResponse("a page")},
            limits=Limits(MAX_BODY, 3 * TIMEOUT_S, lambda: 3 * TIMEOUT_S),
            admission=self.admission,
            counts=self.counts,
        )
        config = uvicorn.Config(
            edge, log_config=None, lifespan="off", timeout_keep_alive=3 * TIMEOUT_S
        )
        config.load()
        self.uvicorn = uvicorn.Server(config)
        install(self.uvicorn, 100)

    async def app(self, scope, receive, send):
        """/echo describes the request, /large has a large answer, /slow never ends by itself."""
        body = (await receive())["body"]
        answer: Response
        if scope["path"] == "/large":
            answer = Response(b"x" * LARGE_ANSWER)
        elif scope["path"] == "/slow":
            try:
                await asyncio.sleep(60)
            finally:
                self.ended.append("slow")
            return
        else:
            names = sorted(name.decode() for name, _ in scope["headers"])
            answer = JSONResponse({"size": len(body), "names": names})
        await answer(scope, receive, send)

    @contextmanager
    def running(self) -> Iterator[Server]:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.address = listening.getsockname()
            thread = threading.Thread(target=self.uvicorn.run, kwargs={"sockets": [listening]})
            thread.start()
            try:
                wait_until(lambda: self.uvicorn.started)
                yield self
            finally:
                self.uvicorn.force_exit = self.uvicorn.should_exit = True
                thread.join(TIMEOUT_S)

    def wait_for_unread(self, answers: int) -> None:
        """Wait until so many large answers are counted as unread."""
        wait_until(lambda: sum(self.admission.answers.held.values()) == answers * LARGE_ANSWER)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=TIMEOUT_S)

    def ask(self, data: bytes) -> Answer:
        """Send data, and read one answer."""
        with self.connect() as connection:
            connection.sendall(data)
            return Answer(connection)


class Answer(HTTPResponse):
    """The next answer on a connection, read completely."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self.begin()
        self.body = self.read()

    @property
    def slug(self) -> str:
        assert self.headers["content-type"] == "application/problem+json"
        return str(json.loads(self.body)["type"]).removeprefix("urn:mobile-sam:")


@pytest.fixture
def server() -> Iterator[Server]:
    with Server().running() as running:
        yield running


def post(path: bytes = b"/echo", *fields: bytes, body: bytes = b"") -> bytes:
    lines = [
        b"POST " + path + b" HTTP/1.1",
        b"Host: service",
        b"Content-Length: %d" % len(body),
        *fields,
    ]
    return b"\r\n".join([*lines, b"", body])


def chunked(*fields: bytes) -> bytes:
    """Return the head of a request with a chunked body."""
    return b"\r\n".join(
        [b"POST /echo HTTP/1.1", b"Host: service", b"Transfer-Encoding: chunked", *fields, b"", b""]
    )


@pytest.mark.parametrize(
    ("fields", "more"),
    [
        pytest.param(
            [b"X-%d: 1" % number for number in range(MAX_FIELDS - 2)], b"X: 1", id="fields"
        ),
        pytest.param([b"X: " + b"x" * (MAX_HEAD_BYTES - 500)], b"Y: " + b"y" * 500, id="bytes"),
    ],
)
def test_head_up_to_a_limit_is_accepted_and_a_larger_one_is_refused(server, fields, more):
    assert server.ask(post(b"/echo", *fields)).status == 200
    answer = server.ask(post(b"/echo", b"X-Request-ID: mine", *fields, more))
    assert (answer.status, answer.slug, answer.headers["x-request-id"]) == (
        431,
        "head-too-large",
        "mine",
    )
    assert server.counts.answers[-1] == ("/echo", 431, "head-too-large")


ENDLESS = b"a" * 5 * MAX_HEAD_BYTES


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET /" + ENDLESS, id="url"),
        pytest.param(post()[:-2] + b"X: " + ENDLESS, id="value"),
        pytest.param(post()[:-2] + ENDLESS, id="name"),
        pytest.param(chunked() + b"1;a=" + ENDLESS, id="chunk-extension"),
        pytest.param(chunked() + b"0\r\nX: " + ENDLESS, id="trailer"),
        pytest.param(chunked() + (b"1;a=" + b"b" * 200 + b"\r\nx\r\n") * 2000, id="mostly-framing"),
        pytest.param(chunked() + b"1\r\nxy\r\n", id="chunk"),
        pytest.param(b"\x00\xff\r\n\r\n", id="no-http"),
        pytest.param(b"GET /page HTTP/1.1\r\n\r\n", id="no-host"),
        pytest.param(PAGE[:-2] + b"Host: b\r\n\r\n", id="two-hosts"),
    ],
)
def test_endless_parts_and_what_is_not_http_get_a_400_and_free_everything(
    server, data, monkeypatch
):
    monkeypatch.setattr("utils.edge.connections.CLOSE_DELAY_S", 0.2)
    with server.connect() as connection:
        with suppress(ConnectionError):  # it may be closed while the rest is still sent
            connection.sendall(data)
        assert Answer(connection).status == 400
        wait_until(lambda: not server.admission.bodies.held)
        wait_until(lambda: not server.uvicorn.server_state.connections)


def test_two_lengths_of_a_body_are_refused(server):
    answer = server.ask(chunked(b"Content-Length: 1") + b"0\r\n\r\n")
    assert (answer.status, answer.slug, answer.headers["connection"]) == (
        400,
        "malformed-request",
        "close",
    )


@pytest.mark.parametrize(
    ("target", "status"), [(b"http://a/page", 200), (b"http://[", 404), (b"http://a", 404)]
)
def test_target_may_be_in_absolute_form(server, target, status):
    assert server.ask(PAGE.replace(b"/page", target)).status == status


def test_malformed_body_after_a_refusal_only_ends_the_connection(server, caplog):
    with server.connect() as connection:
        connection.sendall(chunked(b"Origin: https://evil.example") + b"1\r\nx\r\n")
        assert Answer(connection).status == 403
        with suppress(ConnectionError):
            connection.sendall(b"no chunk\r\n")
            assert connection.recv(1) == b""
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_malformed_requests_are_logged_once(server, caplog, monkeypatch):
    monkeypatch.setattr("utils.edge.connections._LOG._windows", {})
    monkeypatch.setattr("utils.edge.connections._LOG._clock", Clock())
    caplog.set_level("INFO")
    for _ in range(5):
        server.ask(b"GET\r\n\r\n")
    (line,) = [
        record.getMessage() for record in caplog.records if "malformed" in record.getMessage()
    ]
    assert line.startswith("127.0.0.1: 400 malformed-request: ")


def test_bodies_in_small_chunks_are_read_completely_without_their_trailers(server):
    with server.connect() as connection:
        for _ in range(4):  # the framing of each one is counted alone
            connection.sendall(chunked() + b"1\r\nx\r\n" * 20_000 + b"0\r\nX-Trailer: 1\r\n\r\n")
            assert json.loads(Answer(connection).body) == {
                "size": 20_000,
                "names": ["host", "transfer-encoding"],
            }


@pytest.mark.parametrize(
    "field", [b"X: 1", b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AA\r\nUpgrade: h2c"]
)
def test_pipelined_requests_are_answered_in_order_and_upgrades_ignored(server, caplog, field):
    with server.connect() as connection:
        last = post(b"/echo", b"Connection: close", body=b"x" * 99_999)
        connection.sendall(
            b"".join(post(b"/echo", field, body=b"x" * size) for size in range(200)) + last
        )
        data = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert [int(size) for size in re.findall(rb'"size":(\d+)', data)] == [*range(200), 99_999]
    assert not caplog.records


def test_large_body_of_a_pipelined_request_is_accepted(server):
    large = post(body=b"x" * 2 * MIB)
    with server.connect() as connection:
        connection.sendall(post(body=b"x" * 200_000) + large[:MIB])
        assert Answer(connection).status == 200
        connection.sendall(large[MIB:])
        assert json.loads(Answer(connection).body)["size"] == 2 * MIB


def test_disconnect_cancels_the_first_of_pipelined_requests(server):
    with server.connect() as connection:
        connection.sendall(post(b"/slow", body=b"x") + post())
        wait_until(lambda: server.admission.in_progress == 1)
    wait_until(lambda: server.ended == ["slow"])


def test_unread_answers_are_bounded_in_bytes(server):
    with ExitStack() as stack:
        share = 3 * 8 * MAX_BODY // 4 // LARGE_ANSWER
        unread = [stack.enter_context(server.connect()) for _ in range(share)]
        for number, connection in enumerate(unread, 1):
            connection.sendall(post(b"/large"))
            server.wait_for_unread(number)
        refused = server.ask(post(b"/large"))
        assert (refused.status, refused.slug) == (503, "overloaded")
        assert server.ask(post()).status == 200  # small answers are not counted
        assert len(Answer(unread[0]).body) == LARGE_ANSWER
    server.wait_for_unread(0)
    wait_until(lambda: not server.admission.in_progress)
    assert server.ask(post(b"/large")).status == 200


class Connections:
    """Connections of one worker, without sockets."""

    def __init__(self, limit: int) -> None:
        async def app(scope, receive, send):
            await asyncio.Event().wait()

        self.state, self.waiting, self.limit = ServerState(), dict[BoundedProtocol, float](), limit
        self.config = uvicorn.Config(app, log_config=None)
        self.config.load()

    def open(self) -> BoundedProtocol:
        connection = BoundedProtocol(
            self.config, self.state, {}, waiting=self.waiting, limit=self.limit
        )
        connection.connection_made(
            Mock(**{"get_extra_info.return_value": None, "get_write_buffer_size.return_value": 0})
        )
        return connection


def aborted(*connections: BoundedProtocol) -> list[bool]:
    return [connection.transport.abort.called for connection in connections]  # type: ignore[attr-defined]


async def test_new_connection_replaces_the_longest_waiting_one():
    connections = Connections(3)
    first, second, third = (connections.open() for _ in range(3))
    first.data_received(PAGE)
    fourth = connections.open()
    assert aborted(first, second, third, fourth) == [False, True, False, False]
    for connection in (third, fourth):
        connection.data_received(PAGE)
    assert aborted(connections.open()) == [True]  # the service works for all others
    assert connections.state.connections == {first, third, fourth}


async def test_body_that_is_mostly_framing_and_malformed_is_refused_once():
    connection = Connections(9).open()
    connection.data_received(chunked() + b"1\r\nx\r\n" * 32_666 + b"no chunk\r\n")
    assert connection.transport._transport.write.call_count == 1  # type: ignore[attr-defined]


async def test_incomplete_request_stalls_its_connection():
    connection, now = Connections(9).open(), asyncio.get_running_loop().time()
    connection.data_received(PAGE[:-2])
    assert not connection.is_stalled(now + HEADERS_TIMEOUT_S - 1)
    assert connection.is_stalled(now + HEADERS_TIMEOUT_S + 1)
    connection.data_received(PAGE[-2:])
    assert not connection.is_stalled(now + 1000)


@pytest.mark.parametrize(
    ("taken", "stalled"), [(0, True), (MIN_READ_BYTES - 1, True), (MIN_READ_BYTES, False)]
)
async def test_unread_answer_stalls_its_connection_unless_it_is_read_at_a_smallest_rate(
    taken, stalled
):
    connection = Connections(9).open()
    unread: Mock = connection.transport.get_write_buffer_size  # type: ignore[assignment]
    connection.transport.write(bytes(1_000_000))
    unread.return_value = 1_000_000
    assert not connection.is_stalled(1)
    assert not connection.is_stalled(READ_WINDOW_S)
    connection.transport.write(bytes(200_000))
    unread.return_value = 1_200_000 - taken
    assert not connection.is_stalled(READ_WINDOW_S + 0.9)
    assert connection.is_stalled(READ_WINDOW_S + 1) is stalled
    unread.return_value = 0
    assert not connection.is_stalled(READ_WINDOW_S + 2)
    unread.return_value = 1
    assert not connection.is_stalled(10 * READ_WINDOW_S)  # of the next answer


def test_few_descriptors_reduce_the_number_of_connections(monkeypatch, caplog):
    monkeypatch.setattr("resource.getrlimit", lambda _: (1024, 1024))
    allowed = allowed_connections(1000)
    assert MIN_CONNECTIONS <= allowed <= 1024 - RESERVED_DESCRIPTORS
    assert "instead of 1000: this process is limited to 1024 file descriptors" in caplog.text
    assert allowed_connections(MIN_CONNECTIONS) == MIN_CONNECTIONS


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        pytest.param(("192.0.2.7", 1), "192.0.2.7", id="IPv4"),
        pytest.param(("2001:db8:1:2:3:4:5:6", 1), "2001:db8:1:2::/64", id="IPv6-network"),
        pytest.param(("a name", 1), "a name", id="not-an-address"),
        pytest.param(None, "unknown", id="none"),
    ],
)
def test_caller_is_identified_by_address_or_network(client, expected):
    assert address({"client": client}) == expected
