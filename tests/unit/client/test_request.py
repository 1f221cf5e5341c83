"""The script client/request.py: API key, retries and errors."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
import requests

from client.request import MAX_RETRIES, MAX_RETRY_WAIT_S, Photo, main

IMAGE = {"image_id": "the id", "width": 40, "height": 30, "weights": {"name": "none", "trained": True}}
KEY = "a-key-of-16-characters"


class Service:
    """Fake service that returns queued answers, the last one repeatedly, and records the requests."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.requests: list[tuple[dict[str, str], dict]] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                service.requests.append(({name.lower(): value for name, value in self.headers.items()}, body))
                answers = service.answers
                status, headers, content = answers.pop(0) if len(answers) > 1 else answers[0]
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *arguments) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def queue_image(self) -> None:
        self.answers.append((200, {"Content-Type": "application/json"}, json.dumps(IMAGE).encode()))

    def queue_problem(self, status: int, detail: str = "not now", slug: str = "some", **headers: str) -> None:
        problem = {"type": f"urn:mobile-sam:{slug}", "title": "No", "status": status, "detail": detail}
        extra = {name.replace("_", "-"): value for name, value in headers.items()}
        all_headers = {"Content-Type": "application/problem+json", "X-Request-ID": "the-request", **extra}
        self.answers.append((status, all_headers, json.dumps(problem).encode()))


@pytest.fixture
def service() -> Iterator[Service]:
    running = Service()
    thread = threading.Thread(target=running.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.server.shutdown()
    thread.join()
    running.server.server_close()


@pytest.fixture
def photo(service) -> Iterator[Photo]:
    """A `Photo` at the fake service, with an API key."""
    photo = Photo(service.url, b"an image", key=KEY)
    yield photo
    photo._session.close()


@pytest.fixture(autouse=True)
def waits(monkeypatch) -> list[float]:
    """Seconds that the client would have slept, per wait."""
    waited: list[float] = []
    monkeypatch.setattr("client.request.time", SimpleNamespace(sleep=waited.append))
    return waited


@pytest.fixture
def run(service, tmp_path, monkeypatch):
    """Run the command line against the fake service and return its exit status."""
    monkeypatch.delenv("MOBILE_SAM_API_KEY", raising=False)
    file = tmp_path / "photo.jpg"
    file.write_bytes(b"an image")

    def command(*arguments: str) -> int:
        return main([str(file), "--point", "1,1", "--url", service.url, *arguments])

    return command


def test_key_is_sent_as_bearer_token(service, photo):
    service.queue_image()
    photo.embed()
    ((headers, _),) = service.requests
    assert headers["authorization"] == f"Bearer {KEY}"


def test_netrc_does_not_override_key(service, photo, tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text("default login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    service.queue_image()
    photo.embed()
    assert service.requests[0][0]["authorization"] == f"Bearer {KEY}"


def test_no_authorization_without_key(service, monkeypatch, tmp_path):
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    service.queue_image()
    Photo(service.url, b"an image").embed()
    assert "authorization" not in service.requests[0][0]


@pytest.mark.parametrize("text", [KEY, f" {KEY}\n"], ids=["plain", "surrounding whitespace"])
def test_command_reads_key_from_environment(service, run, monkeypatch, text):
    monkeypatch.setenv("MOBILE_SAM_API_KEY", text)
    service.queue_problem(422)
    assert run() == 1
    assert service.requests[0][0]["authorization"] == f"Bearer {KEY}"


def test_command_ignores_empty_key(service, run, monkeypatch, tmp_path):
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("MOBILE_SAM_API_KEY", "")
    service.queue_problem(422)
    assert run() == 1
    assert "authorization" not in service.requests[0][0]


@pytest.mark.parametrize("key", ["geheimer-schlüssel-ä", "two\nlines-of-a-key"])
def test_command_rejects_invalid_key_without_showing_it(service, run, monkeypatch, capsys, key):
    monkeypatch.setenv("MOBILE_SAM_API_KEY", key)
    assert run() == 1
    assert capsys.readouterr().err == "error: MOBILE_SAM_API_KEY: expected printable ASCII\n"
    assert not service.requests


@pytest.mark.parametrize("status", [429, 503])
def test_busy_service_is_retried(service, photo, waits, capsys, status):
    service.queue_problem(status, Retry_After="2")
    service.queue_problem(status, Retry_After="7")
    service.queue_image()
    assert photo.embed() == IMAGE
    assert waits == [2, 7]
    assert len({json.dumps(body) for _, body in service.requests}) == 1
    assert capsys.readouterr().err == f"{status}: retrying in 2 s, up to {MAX_RETRIES} times\n"


def test_retry_wait_is_limited(service, photo, waits):
    service.queue_problem(429, Retry_After="3600")
    service.queue_image()
    photo.embed()
    assert waits == [MAX_RETRY_WAIT_S]


def test_retries_are_limited(service, photo, waits):
    service.queue_problem(503, Retry_After="1", detail="32 requests wait already")
    with pytest.raises(requests.HTTPError, match=r"^503: 32 requests wait already \(request the-request\)$"):
        photo.embed()
    assert waits == [1] * MAX_RETRIES
    assert len(service.requests) == MAX_RETRIES + 1


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (503, {}),
        (429, {}),
        (503, {"Retry_After": "Wed, 21 Oct 2026 07:28:00 GMT"}),
        (503, {"Retry_After": "-1"}),
        (500, {"Retry_After": "1"}),
    ],
    ids=["503 without header", "429 without header", "date", "negative", "status 500"],
)
def test_no_retry_without_valid_retry_after(service, photo, waits, status, headers):
    service.queue_problem(status, **headers)
    with pytest.raises(requests.HTTPError):
        photo.embed()
    assert not waits
    assert len(service.requests) == 1


def test_uncached_image_is_uploaded_again(service, photo, waits):
    photo.image_id = "an old id"
    service.queue_problem(503, Retry_After="1")
    service.queue_problem(404, slug="image-not-cached")
    service.queue_image()
    photo.embed()
    sent = {"input_image": base64.b64encode(b"an image").decode()}
    assert [body for _, body in service.requests] == [{"image_id": "an old id"}, {"image_id": "an old id"}, sent]
    assert waits == [1]


@pytest.mark.parametrize("status", [400, 401, 408, 413, 415, 422, 429, 500, 503, 504])
def test_problem_is_printed_in_one_line_with_request_id(service, run, capsys, status):
    service.queue_problem(status, detail="expected this,\n  got that")
    assert run() == 1
    output = capsys.readouterr()
    assert output.err == f"error: {status}: expected this, got that (request the-request)\n"
    assert not output.out


def test_problem_in_streamed_answer_is_printed(service, run, capsys, tmp_path):
    step = {"problem": {"status": 504, "detail": "no answer within 55 s"}}
    service.answers.append((200, {"X-Request-ID": "the-request"}, json.dumps(step).encode()))
    assert run("--everything", str(tmp_path / "records.json")) == 1
    assert capsys.readouterr().err == "error: 504: no answer within 55 s (request the-request)\n"


def test_error_without_problem_document_prints_its_first_line(service, run, capsys):
    service.answers.append((502, {"Content-Type": "text/html"}, b"<h1>Bad Gateway</h1>\n<hr>\n"))
    assert run() == 1
    assert capsys.readouterr().err == "error: 502: <h1>Bad Gateway</h1>\n"
