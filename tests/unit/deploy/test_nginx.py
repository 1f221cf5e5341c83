"""deploy/nginx/mobile-sam.conf before a server that holds its answers back."""

import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from harness import nginx, wait_until

pytestmark = pytest.mark.slow
LIMIT = 100
"""Requests that nginx passes on for one address at a time, but for the page's files."""
AT_ONCE = 120
"""Fewer than the streams of one HTTP/2 connection, by default 128."""


class HoldingServer(ThreadingHTTPServer):
    """Server whose answers wait until `release` is set."""

    request_queue_size = 512
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.paths: list[str] = []
        self.release = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HoldingServer

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        self.server.release.wait(60)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.fixture
def service() -> Iterator[HoldingServer]:
    with HoldingServer() as server:
        yield server
        server.shutdown()


@pytest.fixture
def url(tmp_path: Path, service: HoldingServer) -> Iterator[str]:
    """Run nginx with TLS and HTTP/2, and return its URL."""
    if not nginx.installed() or not shutil.which("curl"):
        pytest.skip(
            "not installed: nginx or curl; as root on Debian: apt-get install nginx-light curl"
        )
    with nginx.running(tmp_path / "nginx", service.server_port, nginx.HTTP2) as server:
        yield server.url


@contextmanager
def requested(url: str) -> Iterator[Iterator[str]]:
    """Send requests at once by one connection; yield the lines "STATUS HTTP-VERSION" as they come."""
    command = [
        "curl",
        "--no-progress-meter",
        "--insecure",
        "--http2",
        "--parallel",
        "--parallel-max",
        "300",
    ]
    shown = ["--output", "/dev/null", "--write-out", "%{stderr}%{http_code} %{http_version}\n"]
    with subprocess.Popen(
        [*command, *shown, f"{url}?[1-{AT_ONCE}]"], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr  # it is not buffered
        yield process.stderr


def test_all_files_of_the_page_are_passed_on_at_once(url, service):
    with requested(f"{url}/ui/a/app.js") as answers:
        wait_until(lambda: len(service.paths) == AT_ONCE)
        service.release.set()
        assert Counter(answers) == {"200 2\n": AT_ONCE}


def test_requests_of_one_address_are_limited(url, service):
    with requested(f"{url}/embeddings/a") as answers:
        refused = [next(answers) for _ in range(AT_ONCE - LIMIT)]
        wait_until(lambda: len(service.paths) == LIMIT)
        service.release.set()
        assert {*refused} == {"503 2\n"}
        assert Counter(answers) == {"200 2\n": LIMIT}
