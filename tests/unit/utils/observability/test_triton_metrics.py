"""Triton's part of `/metrics`."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchmarks.service import free_ports
from utils.observability import triton_metrics
from utils.observability.triton_metrics import TritonMetrics

SERIES = b'# TYPE nv_inference_count counter\nnv_inference_count{model="mobile_sam"} 3\n'


@contextmanager
def triton(status: int) -> Iterator[int]:
    """Run a server with metrics, and yield its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(SERIES)))
            self.end_headers()
            self.wfile.write(SERIES)

        def log_message(self, *arguments) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def read(port: int) -> bytes:
    return asyncio.run(TritonMetrics(port)())


def test_tritons_series_follow_the_up_metric():
    with triton(200) as port:
        assert read(port).endswith(b"\nmobile_sam_triton_metrics_up 1\n" + SERIES)


@pytest.mark.parametrize("status", [500, 404])
def test_up_metric_is_0_for_error_answers(status):
    with triton(status) as port:
        assert read(port).endswith(b"\nmobile_sam_triton_metrics_up 0\n")


def test_up_metric_is_0_for_a_hanging_triton(monkeypatch):
    monkeypatch.setattr(triton_metrics, "TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert read(silent.getsockname()[1]).endswith(b"\nmobile_sam_triton_metrics_up 0\n")


def test_up_metric_is_0_without_triton():
    assert read(free_ports(1)[0]).endswith(b"\nmobile_sam_triton_metrics_up 0\n")
