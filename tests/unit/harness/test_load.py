"""Load generator against a small server."""

import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

import pytest

from harness import free_ports, wait_until
from harness.load import Request, closed_loop, crowd, open_loop

WORK_S = 0.05


class Echo(BaseHTTPRequestHandler):
    """Handler of one request at a time; the body is the status of the answer."""

    protocol_version = "HTTP/1.1"
    lock = threading.Lock()
    connections: set[tuple[str, int]]

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.connections.add(self.client_address)
        with self.lock:
            time.sleep(WORK_S)
        problem = b'{"type": "urn:x:overloaded"}'
        self.send_response(int(body))
        self.send_header("Content-Length", str(len(problem)))
        self.end_headers()
        self.wfile.write(problem)

    def log_message(self, format, *args):  # noqa: A002
        pass


@pytest.fixture
def handler():
    return type("Handler", (Echo,), {"connections": set()})


@pytest.fixture
def port(handler):
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_closed_loop_reuses_connections_and_has_an_outcome_of_each_request(handler, port):
    found = closed_loop(
        port, [Request("/", status) for status in (b"200", b"200", b"503", b"200")], callers=2
    )
    assert found.reasons() == {"ok": 3, "overloaded": 1}
    assert len(found.answered()) == 3
    assert len(handler.connections) == 2


def test_open_loop_does_not_wait_for_answers(port):
    began = time.monotonic()
    found = open_loop(port, [Request("/", b"200")] * 10, rate=200)
    # The server answers one by one what is sent at once.
    assert len(found.answered()) == 10
    assert time.monotonic() - began >= 10 * WORK_S
    assert max(outcome.seconds for outcome in found.all) > 5 * WORK_S


def test_crowd_varies_its_requests_and_ends_with_an_outcome_of_each(port):
    numbers = count(200)
    renewed = Request("/", b"500", renew=lambda _: str(next(numbers)).encode())
    with crowd(port, lambda: renewed, 3, keep=False) as found:
        wait_until(lambda: len(found.all) > 5)
    ended = len(found.all)
    assert sorted(outcome.status for outcome in found.all) == list(range(200, 200 + ended))


def test_outcome_tells_a_missing_server_from_a_lost_answer():
    (free,) = free_ports(1)
    assert closed_loop(free, [Request("/")]).reasons() == {"refused": 1}
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: server.accept()[0].close(), daemon=True).start()  # noqa: PLW0108
        found = closed_loop(server.getsockname()[1], [Request("/")])
    assert found.reasons() == {"lost": 1}


def test_request_on_a_closed_idle_connection_is_sent_again(handler, port, monkeypatch):
    def answer_and_hang_up(self):
        self.close_connection = True  # without saying so in a header
        Echo.do_POST(self)

    monkeypatch.setattr(handler, "do_POST", answer_and_hang_up)
    found = open_loop(port, [Request("/", b"200")] * 3, rate=4)
    assert found.reasons() == {"ok": 3}
    assert len(handler.connections) == 3
