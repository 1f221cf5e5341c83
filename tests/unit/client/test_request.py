"""The script client/request.py: API key, retries and errors."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from client.request import main
from tests.unit.client.mobile_sam_client.fake_service import (
    IMAGE,
    FakeService,
    make_reply,
    multipart,
    named_image,
    problem_reply,
)

KEY = "a-key-of-16-characters"
PARTS = [
    ("mask", b"a mask"),
    ("segmented_image", b"a picture"),
    ("result", json.dumps(IMAGE).encode()),
]
FOUND = make_reply(multipart(PARTS), "multipart/form-data; boundary=the-boundary")


@pytest.fixture
def service() -> FakeService:
    return FakeService()


@pytest.fixture
def url(service) -> Iterator[str]:
    """Address at which the fake service listens."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body, headers = (
                self.rfile.read(int(self.headers["Content-Length"])),
                dict(self.headers.items()),
            )
            answer = service(
                httpx.Request("POST", f"http://a.example{self.path}", content=body, headers=headers)
            )
            answer.headers["Content-Length"] = str(len(answer.content))
            self.send_response(answer.status_code)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, *_) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def waits(monkeypatch) -> list[float]:
    """Seconds that the script would have slept, per wait."""
    waited: list[float] = []
    # Not `time.sleep` itself: other threads of this process sleep too.
    monkeypatch.setattr(
        "urllib3.util.retry.time", SimpleNamespace(sleep=waited.append, time=time.time)
    )
    return waited


@pytest.fixture
def run(url, tmp_path, monkeypatch) -> Callable[..., object]:
    """Run the script against the fake service and return its error, or None."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MOBILE_SAM_API_KEY", raising=False)
    Path("photo.jpg").write_bytes(b"an image")

    def run(*arguments: str) -> object:
        try:
            main(["photo.jpg", "--url", url, *arguments])
        except SystemExit as error:
            return error.code
        return None

    return run


def test_key_is_read_from_environment(service, run, monkeypatch):
    monkeypatch.setenv("MOBILE_SAM_API_KEY", f" {KEY}\n")
    service.reply_with(FOUND)
    assert run("--point", "1,1") is None
    assert [request.headers.get("X-API-Key") for request in service.requests] == [KEY]


def test_invalid_key_is_rejected_without_showing_it(service, run, monkeypatch):
    monkeypatch.setenv("MOBILE_SAM_API_KEY", "two\nlines-of-a-key")
    assert run("--point", "1,1") == "error: MOBILE_SAM_API_KEY: expected printable ASCII"
    assert not service.requests


@pytest.mark.parametrize("status", [429, 503])
def test_busy_service_is_retried_as_it_asks(service, run, waits, status):
    service.reply_with(
        problem_reply(status, Retry_After="2"), problem_reply(status, Retry_After="7"), FOUND
    )
    assert run("--point", "1,1") is None
    assert waits == [2, 7]
    assert (
        len({(request.content, request.headers["X-Image-Id"]) for request in service.requests}) == 1
    )
    assert service.requests[0].headers["X-Image-Id"] == named_image(service.requests[0])


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (problem_reply(422, detail="expected this,\n  got that"), "422: expected this, got that"),
        (problem_reply(503), "503: not now"),
        (make_reply(b"<h1>Bad Gateway</h1>\n", "text/html", 502), "502: <h1>Bad Gateway</h1>"),
        (make_reply(b"", "text/html", 307, Location="http://a.example"), "307:"),
    ],
    ids=["invalid", "busy without Retry-After", "gateway", "redirect"],
)
def test_other_errors_are_printed_in_one_line_and_not_retried(service, run, waits, answer, error):
    service.reply_with(answer)
    assert run("--point", "1,1") == f"error: {error} (request the-request)"
    assert not waits
    assert len(service.requests) == 1


def test_missing_image_and_service_are_errors_of_one_line(run, tmp_path):
    error = "error: cannot connect to http://127.0.0.1:9; start it with `make serve`"
    assert run("--url", "http://127.0.0.1:9", "--point", "1,1") == error
    (tmp_path / "photo.jpg").unlink()
    assert run("--point", "1,1") == "error: [Errno 2] No such file or directory: 'photo.jpg'"
