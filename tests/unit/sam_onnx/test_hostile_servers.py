"""Hostile answers to a download of weights, from a local server: each is one line, and nothing is taken for weights."""

import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
import requests

from sam_onnx import DownloadError
from sam_onnx import download as downloads
from sam_onnx.download import download
from sam_onnx.sources import WebFile


class Server(ThreadingHTTPServer):
    """Server that answers every request alike."""

    daemon_threads = True
    status: int = 200
    headers: dict[str, str]
    body: bytes = b""
    is_endless: bool = False
    requests: int = 0


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.requests += 1
        self.send_response(self.server.status)
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(self.server.body)
            while self.server.is_endless:
                self.wfile.write(self.server.body)
        except OSError:
            pass  # the client has gone

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as running:
        running.headers = {}
        thread = Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def refusal(server: Server, folder, *, size: int | None = None) -> str:
    """Return the error of a download of a file without a known hash, which leaves no weights."""
    source = WebFile(f"http://127.0.0.1:{server.server_port}/weights.pt", size, "")
    with pytest.raises(DownloadError) as caught:
        download(source, folder)
    assert not (folder / "weights.pt").exists()
    assert str(caught.value).isprintable()
    return str(caught.value).replace(source.url, "URL")


@pytest.mark.parametrize(
    ("status", "headers", "message"),
    [
        (200, {"Content-Type": "text/html; charset=utf-8"}, "expected a file from URL, got a page of HTML"),
        (200, {"Content-Encoding": "gzip"}, "expected URL as it is, got it compressed by gzip"),
        (206, {"Content-Range": "bytes 0-1/9"}, "expected the whole of URL, got a part"),
        (302, {"Location": "file:///etc/passwd"}, "cannot download URL: InvalidSchema"),
        (302, {"Location": "/weights.pt"}, "cannot download URL: HTTP status 302"),
        (200, {"Content-Length": "1000"}, "cannot download URL: "),
    ],
    ids=["page", "gzip", "part", "other scheme", "redirect loop", "short body"],
)
def test_answer_that_is_no_whole_file_is_refused(server, tmp_path, status, headers, message):
    server.status, server.headers, server.body = status, headers, b"xx"
    assert refusal(server, tmp_path).startswith(message)
    assert server.requests <= 31


def test_endless_body_ends_at_the_known_size(server, tmp_path):
    server.body, server.is_endless = b"x" * 2**16, True
    assert refusal(server, tmp_path, size=2**20) == "expected at most 1048576 bytes from URL, got more"


def test_slow_body_is_given_up(server, tmp_path, monkeypatch):
    times = iter([0.0, *range(61, 10_000)])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))
    server.body, server.is_endless = b"x" * 100, True
    monkeypatch.setattr(downloads, "CHUNK_BYTES", 100)
    assert refusal(server, tmp_path) == "URL sends less than 10000 bytes a second"


def test_length_that_is_no_number_is_not_needed(server, tmp_path):
    server.headers, server.body = {"Content-Length": "many"}, b"weights"
    source = WebFile(f"http://127.0.0.1:{server.server_port}/weights.pt", None, "")
    assert download(source, tmp_path).read_bytes() == b"weights"


def test_redirect_out_of_https_is_refused():
    answer = requests.Response()
    answer.status_code, answer.url, answer.request = 200, "http://10.0.0.1/x", requests.PreparedRequest()
    with pytest.raises(DownloadError, match="expected https://a/b to stay with https, got a redirect to http://10"):
        downloads._check_answer(WebFile("https://a/b", None, ""), answer)
