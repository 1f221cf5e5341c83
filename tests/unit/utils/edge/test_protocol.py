"""The bounded HTTP protocol on a real uvicorn server, with the edge around a fake application."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.client import HTTPResponse

import psutil
import pytest
import uvicorn
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from tests.unit.utils.edge.fakes import FakeCounts, FakeTransport, make_edge
from tests.waiting import wait_until
from utils.edge.admission import Admission
from utils.edge.middleware import MAX_LARGE_BODIES, Limits
from utils.edge.protocol import (
    MAX_FIELDS,
    MAX_HEAD_BYTES,
    MAX_PIPELINED,
    Connections,
    UnknownServerError,
    address,
    install,
)

MIB = 2**20
MAX_BODY = 4 * MIB
LARGE_ANSWER = 8 * MIB
TIMEOUT_S = 20


class Server:
    """A server on a free port in a thread."""

    def __init__(self, max_connections: int = 100) -> None:
        self.counts, self.admission = FakeCounts(), Admission(4, 8 * MAX_BODY, 8 * MAX_BODY)
        self.connections = Connections(max_connections)
        self.ended: list[str] = []
        edge = make_edge(
            self.app,
            work_paths=frozenset({"/echo", "/lines", "/large", "/slow"}),
            pages={"/page": PlainTextResponse("a page")},
            limits=Limits(MAX_BODY, 3 * TIMEOUT_S, 3 * TIMEOUT_S),
            admission=self.admission,
            counts=self.counts,
        )
        config = uvicorn.Config(edge, log_config=None, lifespan="off")
        config.load()
        self.uvicorn = uvicorn.Server(config)
        install(self.uvicorn, self.connections)

    async def app(self, scope, receive, send):
        """/echo describes the request, /lines streams, /large has a large answer, /slow never ends by itself."""
        body = (await receive())["body"]
        answer: Response
        if scope["path"] == "/lines":

            async def lines():
                for number in range(3):
                    yield b"line %d\n" % number

            answer = StreamingResponse(lines())
        elif scope["path"] == "/large":
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

    def has_unread(self, large_answers: int) -> bool:
        """Return whether so many large answers are counted as unread."""
        return self.admission._answer_bytes == large_answers * LARGE_ANSWER

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=TIMEOUT_S)

    def ask(self, *parts: bytes) -> Answer:
        """Send all parts, and read one answer."""
        with self.connect() as connection:
            for part in parts:
                connection.sendall(part)
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


def read_all(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65_536), b""))


def is_closed(connection: socket.socket) -> bool:
    """Wait for data, and return whether the server closed the connection instead."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.fixture
def server() -> Iterator[Server]:
    with Server().running() as running:
        yield running


def post(path: bytes = b"/echo", *fields: bytes, body: bytes = b"", version: bytes = b"1.1") -> bytes:
    lines = [b"POST " + path + b" HTTP/" + version, b"Host: service", b"Content-Length: %d" % len(body), *fields]
    return b"\r\n".join([*lines, b"", body])


def chunked(*fields: bytes) -> bytes:
    """Return the head of a request with a chunked body."""
    return b"\r\n".join([b"POST /echo HTTP/1.1", b"Host: service", b"Transfer-Encoding: chunked", *fields, b"", b""])


def head_of(size: int) -> bytes:
    """Return a request without a body, of `size` bytes."""
    return post(b"/echo", b"X: " + b"x" * (size - len(post(b"/echo", b"X: "))))


def assert_refused(server: Server, answer: Answer) -> None:
    assert (answer.status, answer.slug) == (431, "head-too-large")
    assert answer.headers["connection"] == "close"
    assert len(answer.headers["x-request-id"]) == 32
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert ("other", 431, "head-too-large") in server.counts.answers


def test_head_of_the_maximum_size_is_accepted_and_one_byte_more_is_refused(server):
    assert server.ask(head_of(MAX_HEAD_BYTES)).status == 200
    assert_refused(server, server.ask(head_of(MAX_HEAD_BYTES + 1)))


def test_caller_that_keeps_sending_after_a_refusal_receives_it(server):
    with server.connect() as connection:
        connection.sendall(head_of(2 * MAX_HEAD_BYTES))
        wait_until(lambda: server.counts.answers)
        for _ in range(4):
            connection.sendall(b"x" * MAX_HEAD_BYTES)
        assert_refused(server, Answer(connection))


def test_hundred_fields_are_accepted_and_one_more_is_refused(server):
    fields = [b"X-%d: 1" % number for number in range(MAX_FIELDS - 2)]  # plus Host and Content-Length
    assert server.ask(post(b"/echo", *fields)).status == 200
    assert_refused(server, server.ask(post(b"/echo", *fields, b"X: 1")))


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(b"GET /" + b"a" * MAX_HEAD_BYTES, id="url"),
        pytest.param(post()[:-2] + b"X: " + b"a" * MAX_HEAD_BYTES, id="value"),
        pytest.param(post()[:-2] + b"a" * 2 * MAX_HEAD_BYTES, id="name"),
        pytest.param(post()[:-2] + b"X:" + b" " * 2 * MAX_HEAD_BYTES, id="blanks"),
        pytest.param(b"\r\n" * MAX_HEAD_BYTES, id="empty-lines"),
        pytest.param(chunked() + b"1;a=" + b"b" * 2 * MAX_HEAD_BYTES, id="chunk-extension"),
        pytest.param(chunked() + b"0" * 2 * MAX_HEAD_BYTES, id="chunk-size"),
        pytest.param(chunked() + b"0\r\nX: " + b"a" * 2 * MAX_HEAD_BYTES, id="trailer"),
    ],
)
def test_endless_part_of_a_head_is_refused(server, start):
    assert_refused(server, server.ask(start))


@pytest.mark.parametrize(
    "trailers",
    [
        pytest.param([b"X: " + b"a" * 1000 for _ in range(70)], id="bytes"),
        pytest.param([b"X: a" for _ in range(MAX_FIELDS)], id="fields"),
    ],
)
def test_too_many_trailers_abort_the_request_being_read(server, trailers):
    with server.connect() as connection:
        connection.sendall(chunked() + b"1\r\nx\r\n")
        wait_until(lambda: server.admission._body_bytes.total() == 1)
        connection.sendall(b"0\r\n" + b"\r\n".join(trailers))
        assert_refused(server, Answer(connection))
    wait_until(lambda: not server.admission._body_bytes)


def test_too_large_head_in_small_pieces_is_refused(server):
    with server.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            connection.sendall(b"GET /page HTTP/1.1\r\n")
            for _ in range(MAX_HEAD_BYTES // 512 + 40):
                connection.sendall(b"X" * 512)
        except ConnectionError:
            pass
        assert_refused(server, Answer(connection))


def test_flood_of_trailers_takes_bounded_memory(server):
    process = psutil.Process()
    server.ask(post())
    before = process.memory_info().rss
    sent = 0
    trailer = b"X-Trailer: " + b"a" * 1000 + b"\r\n"
    for _ in range(5):
        with server.connect() as connection, ExitStack() as stack:
            stack.enter_context(pytest.raises((ConnectionError, TimeoutError)))
            connection.sendall(chunked() + b"0\r\n")
            while sent < 400 * MIB:
                connection.sendall(trailer * 1000)
                sent += 1000 * len(trailer)
            pytest.fail("all trailers were accepted")
        assert server.ask(b"GET /page HTTP/1.1\r\nHost: a\r\n\r\n").status == 200
    assert process.memory_info().rss - before < 20 * MIB


def test_body_in_small_chunks_is_read_completely_without_its_trailers(server):
    size = 300_000
    body = b"1\r\nx\r\n" * size  # the framing alone is five times the limit of a head
    answer = server.ask(chunked() + body + b"0\r\nX-Trailer: 1\r\n\r\n")
    assert answer.status == 200
    assert json.loads(answer.body) == {"size": size, "names": ["host", "transfer-encoding"]}


def test_pipelined_requests_are_answered_in_order_before_a_refusal(server):
    with server.connect() as connection:
        requests = [post(b"/echo", body=b"x" * size) for size in (1, 2, 3)]
        connection.sendall(b"".join(requests) + head_of(MAX_HEAD_BYTES + 1))
        data = read_all(connection)
    first, second, third, last = data.split(b"HTTP/1.1 ")[1:]
    assert [json.loads(answer.partition(b"\r\n\r\n")[2])["size"] for answer in (first, second, third)] == [1, 2, 3]
    assert last.startswith(b"431 ")


def test_too_many_pipelined_requests_are_refused(server):
    with server.connect() as connection:
        connection.sendall(b"GET /page HTTP/1.1\r\nHost: a\r\n\r\n" * (MAX_PIPELINED + 50))
        data = read_all(connection)
    assert data.count(b"HTTP/1.1 200 ") == MAX_PIPELINED + 1
    assert data.count(b"HTTP/1.1 400 ") == 1


def test_disconnect_cancels_the_first_of_pipelined_requests(server):
    with server.connect() as connection:
        connection.sendall(post(b"/slow", body=b"x") + post())
        wait_until(lambda: server.admission.in_progress == 1)
    wait_until(lambda: server.ended == ["slow"])


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        pytest.param(b"GET /page HTTP/1.1\r\n\r\n", 400, id="none"),
        pytest.param(b"GET /page HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400, id="two"),
        pytest.param(b"GET /page HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400, id="two-in-http-1.0"),
        pytest.param(b"GET /page HTTP/1.0\r\n\r\n", 200, id="none-in-http-1.0"),
    ],
)
def test_host_header_is_required_except_in_http_1_0(server, request_bytes, status):
    answer = server.ask(request_bytes)
    assert answer.status == status
    assert status == 200 or answer.slug == "malformed-request"


@pytest.mark.parametrize("text", [b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n"])
def test_invalid_http_is_answered_with_a_problem(server, text):
    answer = server.ask(text)
    assert (answer.status, answer.slug) == (400, "malformed-request")
    assert answer.headers["x-frame-options"] == "DENY"


def test_refusal_has_the_callers_request_id(server):
    answer = server.ask(post(b"/echo", b"X-Request-ID: mine", b"X: " + b"a" * MAX_HEAD_BYTES))
    assert answer.headers["x-request-id"] == "mine"


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket"])
@pytest.mark.parametrize("size", [0, 5, 100_000])
def test_upgrade_is_ignored_and_the_body_read(server, protocol, size):
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AA\r\nUpgrade: " + protocol
    with server.connect() as connection:
        for _ in range(2):
            connection.sendall(post(b"/echo", upgrade, body=b"x" * size))
            answer = Answer(connection)
            assert (answer.status, json.loads(answer.body)["size"]) == (200, size)
            assert "upgrade" not in json.loads(answer.body)["names"]


def test_pipelined_upgrade_requests_are_answered_in_order(server):
    fields = [b"Connection: Upgrade\r\nUpgrade: h2c"] * 3 + [b"Connection: Upgrade, close\r\nUpgrade: h2c"]
    with server.connect() as connection:
        connection.sendall(b"".join(post(b"/echo", field, body=b"x" * size) for size, field in enumerate(fields)))
        received = read_all(connection)
    assert re.findall(rb'"size":(\d+)', received) == [b"0", b"1", b"2", b"3"]


def test_streamed_answer_is_chunked_only_in_http_1_1(server):
    whole = b"line 0\nline 1\nline 2\n"
    old = server.ask(post(b"/lines", b"Connection: keep-alive", version=b"1.0"))
    assert (old.status, old.body, old.headers["connection"]) == (200, whole, "close")
    assert "transfer-encoding" not in old.headers
    new = server.ask(post(b"/lines"))
    assert (new.headers["transfer-encoding"], new.body) == ("chunked", whole)


def test_unread_answers_are_bounded_in_bytes(server):
    unread = [server.connect() for _ in range(8)]
    limit = 8 * MAX_BODY
    for number, connection in enumerate(unread):
        connection.sendall(post(b"/large"))
        if number < limit // LARGE_ANSWER:
            wait_until(partial(server.has_unread, number + 1))
        else:
            refused = Answer(connection)
            assert (refused.status, refused.slug) == (503, "overloaded")
    assert server.ask(post()).status == 200  # small answers are not counted
    for connection in unread[: limit // LARGE_ANSWER]:
        assert len(Answer(connection).body) == LARGE_ANSWER
        connection.close()
    wait_until(lambda: server.admission._answer_bytes == 0)
    assert server.ask(post(b"/large")).status == 200
    for connection in unread:
        connection.close()


def test_disconnect_frees_the_bytes_of_an_unread_answer(server):
    with server.connect() as connection:
        connection.sendall(post(b"/large"))
        wait_until(lambda: server.admission._answer_bytes)
    wait_until(lambda: not server.admission._answer_bytes and not server.admission.in_progress)


def test_new_connection_replaces_the_longest_waiting_one():
    with Server(max_connections=8).running() as server, ExitStack() as stack:
        working = stack.enter_context(server.connect())
        working.sendall(post(b"/slow", body=b"x"))
        wait_until(lambda: server.admission.in_progress)
        halves = []
        for _ in range(20):
            halves.append(stack.enter_context(server.connect()))
            halves[-1].sendall(b"GET /page HTTP/1.1\r\nX-Half: ")
            assert server.ask(b"GET /page HTTP/1.1\r\nHost: a\r\n\r\n").status == 200
            assert len(server.connections) <= 4  # half of 8, for one address
        assert is_closed(halves[0])
        assert server.admission.in_progress == 1


def test_install_rejects_another_protocol():
    config = uvicorn.Config(PlainTextResponse("x"), http=H11Protocol, log_config=None)
    config.load()
    with pytest.raises(UnknownServerError, match="H11Protocol"):
        install(uvicorn.Server(config), Connections(8))


def test_malformed_bodies_behind_an_expectation_are_a_400_alone_while_others_are_read(server):
    head = chunked(b"Expect: 100-continue")
    with ExitStack() as stack:
        for _ in range(MAX_LARGE_BODIES):  # these have the turns
            stack.enter_context(server.connect()).sendall(head + b"1\r\n \r\n")
        callers = [stack.enter_context(server.connect()) for _ in range(10)]
        for caller in callers:
            caller.sendall(head + b"no chunk\r\n")
        for caller in callers:
            assert b"HTTP/1.1 400" in caller.recv(1000)
        wait_until(lambda: len(server.counts.answers) == 20)
    assert {status for _, status, _ in server.counts.answers} == {400, 499}


def open_connections(connections: Connections, *addresses: str) -> list[FakeTransport]:
    made = [FakeTransport() for _ in addresses]
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
    assert not any(connections.add(FakeTransport(), "1.1.1.3") for _ in range(100))
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
