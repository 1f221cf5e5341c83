"""Hostile answers to a download of weights, from a local server: each is one line, and nothing
is taken for weights.
"""

import io
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

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
    wait: Callable[[], object]
    """Called after the first piece of the body."""


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
            self.server.wait()
            while self.server.is_endless:
                self.wfile.write(self.server.body)
        except OSError:
            pass  # the client has gone

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as running:
        running.headers, running.wait = {}, lambda: None
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
        (
            200,
            {"Content-Type": "text/html; charset=utf-8"},
            "expected a file from URL, got a page of HTML",
        ),
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
    assert (
        refusal(server, tmp_path, size=2**20) == "expected at most 1048576 bytes from URL, got more"
    )


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


def redirect(url: str, target: str) -> requests.Response:
    answer = requests.Response()
    answer.raw = io.BytesIO()
    answer.status_code, answer.url, answer.headers["Location"] = 302, url, target
    return answer


@pytest.mark.parametrize(
    "target", ["http://example.org/x", "ftp://example.org/x", "//[", "file:///etc/passwd"]
)
def test_redirect_out_of_https_is_refused(target):
    with pytest.raises((DownloadError, ValueError)):
        downloads._check_redirect(redirect("https://a/b", target))


INSIDE = [
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "0.0.0.0",
    "10.0.0.1",
    "192.168.1.1",
    "172.16.0.1",
    "169.254.169.254",
    "100.64.0.1",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:a9fe:a9fe]",
    "[fd00::1]",
    "[fe80::1%25eth0]",
    "localhost",
    "LOCALHOST",
    "a.localhost",
]


@pytest.mark.parametrize("host", INSIDE)
def test_redirect_from_elsewhere_to_an_address_inside_is_refused(host):
    with pytest.raises(
        DownloadError,
        match="expected a public address from https://a/b, got a redirect to https://",
    ):
        downloads._check_redirect(redirect("https://a/b", f"https://me:secret@{host}:8443/x"))


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://a/b", "https://cdn.example/x"),
        ("https://a/b", "/c"),
        ("https://a/b", "https://1.1.1.1/x"),
        ("https://a/b", "https://[2606:4700::1111]/x"),
        ("https://10.0.0.1/b", "https://10.0.0.2/x"),
        ("http://127.0.0.1:1/b", "/c"),
    ],
)
def test_other_redirects_are_followed(url, target):
    downloads._check_redirect(redirect(url, target))


def test_redirect_is_refused_before_it_is_followed(server, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "_is_inside", lambda url: "inside" in url)
    server.status, server.headers = 302, {"Location": "/inside"}
    assert refusal(server, tmp_path).startswith(
        "expected a public address from URL, got a redirect to "
    )
    assert server.requests == 1


def test_single_bytes_are_taken_as_they_come(server, tmp_path, monkeypatch):
    given_up = Event()
    times = iter([0.0, *range(61, 10_000)])
    monkeypatch.setattr(time, "monotonic", lambda: next(times))

    server.body, server.wait = b"x", given_up.wait
    assert refusal(server, tmp_path) == "URL sends less than 10000 bytes a second"
    given_up.set()
