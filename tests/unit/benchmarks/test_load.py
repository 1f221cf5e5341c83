"""Load client against a fake server."""

import statistics
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise

import pytest

from benchmarks.load import LoadError, Request, Run, load_client, perform, poisson

WORK_S = 0.05


class Server(ThreadingHTTPServer):
    """Echo server that handles one request at a time, each in `WORK_S`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.connections: set[tuple[str, int]] = set()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.connections.add(self.client_address)
        with self.server.lock:
            time.sleep(WORK_S)
        self.send_response(500 if body == b"fail" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):  # noqa: A002
        pass


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def requests_of(*bodies):
    return [Request("/", {}, body) for body in bodies]


def test_closed_loop_reuses_connections_and_counts_every_answer(server):
    outcome = perform(Run(server.server_port, requests_of(*[b"body"] * 6), concurrency=2))
    assert len(outcome.latencies) == 6
    assert outcome.answer_bytes == 6 * 4
    assert len(server.connections) == 2
    assert outcome.seconds >= 6 * WORK_S


def test_idle_connection_is_reopened(server, monkeypatch):
    monkeypatch.setattr("benchmarks.load.MAX_IDLE_S", 0)
    outcome = perform(Run(server.server_port, requests_of(*[b"body"] * 4)))
    assert len(outcome.latencies) == 4
    assert len(server.connections) == 4


def test_open_loop_latency_counts_from_when_a_request_was_due(server):
    outcome = perform(Run(server.server_port, requests_of(*[b"body"] * 4), due=[0.0] * 4))
    # All are due at once; the server handles them one by one.
    assert max(outcome.latencies) >= 4 * WORK_S


def test_open_loop_sends_no_request_before_it_is_due(server):
    outcome = perform(Run(server.server_port, requests_of(b"one", b"two"), due=[0.0, 6 * WORK_S]))
    assert outcome.seconds >= 7 * WORK_S
    assert outcome.latencies[-1] <= outcome.seconds - 6 * WORK_S


def test_unreachable_server_ends_the_run():
    with pytest.raises(LoadError, match="ConnectionRefusedError"):
        perform(Run(1, requests_of(b"body")))


def test_error_status_ends_the_run_but_not_the_client_process(server):
    with load_client() as client:
        with pytest.raises(LoadError, match="500"):
            client.submit(perform, Run(server.server_port, requests_of(b"body", b"fail", b"body"))).result()
        assert len(client.submit(perform, Run(server.server_port, requests_of(b"body"))).result().latencies) == 1


def test_poisson_arrivals_have_the_rate_and_are_reproducible():
    times = poisson(50.0, 5000, seed=1)
    assert times == poisson(50.0, 5000, seed=1)
    assert times == sorted(times)
    assert times[-1] == pytest.approx(100.0, rel=0.05)
    gaps = [after - before for before, after in pairwise(times)]
    assert statistics.pstdev(gaps) == pytest.approx(statistics.mean(gaps), rel=0.1)  # exponential distribution
