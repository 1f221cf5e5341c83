"""The script client/request.py: API key, retries and errors."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from client.request import main
from tests.unit.client.mobile_sam_client.fake_service import IMAGE, multipart

KEY = "a-key-of-16-characters"
PARTS = [("mask", b"a mask"), ("segmented_image", b"a picture"), ("result", json.dumps(IMAGE).encode())]
FOUND = (200, {"Content-Type": "multipart/form-data; boundary=the-boundary"}, multipart(PARTS))


def problem(status: int, detail: str = "not now", **headers: str) -> tuple[int, dict[str, str], bytes]:
    types = {"Content-Type": "application/problem+json", "X-Request-ID": "the-request"}
    return status, {**types, **headers}, json.dumps({"status": status, "detail": detail}).encode()


class Service(ThreadingHTTPServer):
    """Fake service that returns queued answers, the last one repeatedly, and records the requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.requests: list[tuple[str, str | None, dict]] = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Service

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, self.headers["X-API-Key"], body))
        answers = self.server.answers
        status, headers, content = answers.pop(0) if len(answers) > 1 else answers[0]
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as service:
        thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield service
        service.shutdown()
        thread.join()


@pytest.fixture
def waits(monkeypatch) -> list[float]:
    """Seconds that the script would have slept, per wait."""
    waited: list[float] = []
    monkeypatch.setattr("urllib3.util.retry.time.sleep", waited.append)
    return waited


@pytest.fixture
def run(service, tmp_path, monkeypatch) -> Callable[..., object]:
    """Run the script against the fake service and return its error, or None."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MOBILE_SAM_API_KEY", raising=False)
    Path("photo.jpg").write_bytes(b"an image")

    def run(*arguments: str) -> object:
        try:
            main(["photo.jpg", "--url", f"http://127.0.0.1:{service.server_port}", *arguments])
        except SystemExit as error:
            return error.code
        return None

    return run


def test_prompts_are_sent_and_parts_are_written(service, run, capsys):
    service.answers = [FOUND]
    assert run("--point", "1,2", "--negative", "3,4.5", "--box", "0,1,2,3", "--picture", "cutout") is None
    fields = {"pos_coords": [[1, 2]], "neg_coords": [[3, 4.5]], "box": [0, 1, 2, 3], "segmented_image": "cutout"}
    image = base64.b64encode(b"an image").decode()
    assert service.requests == [("/mobile_sam", None, {"input_image": image, "mask_format": "png", **fields})]
    assert (Path("mask.png").read_bytes(), Path("segmented_image.png").read_bytes()) == (b"a mask", b"a picture")
    assert capsys.readouterr().out == f"{json.dumps(IMAGE)}\nwrote mask.png and segmented_image.png\n"


def test_everything_is_written_as_it_comes(service, run):
    service.answers = [(200, {}, b'{"masks": []}')]
    assert run("--everything", "records.json", "--points-per-side", "8") is None
    assert Path("records.json").read_bytes() == b'{"masks": []}'
    assert [(path, fields["points_per_side"]) for path, _, fields in service.requests] == [("/everything", 8)]


@pytest.mark.parametrize(("text", "sent"), [(KEY, KEY), (f" {KEY}\n", KEY), ("", None)], ids=["key", "spaces", "empty"])
def test_key_is_read_from_environment(service, run, monkeypatch, text, sent):
    monkeypatch.setenv("MOBILE_SAM_API_KEY", text)
    service.answers = [FOUND]
    assert run("--point", "1,1") is None
    assert [key for _, key, _ in service.requests] == [sent]


@pytest.mark.parametrize("key", ["geheimer-schlüssel-ä", "two\nlines-of-a-key"], ids=["not ASCII", "two lines"])
def test_invalid_key_is_rejected_without_showing_it(service, run, monkeypatch, key):
    monkeypatch.setenv("MOBILE_SAM_API_KEY", key)
    assert run("--point", "1,1") == "error: MOBILE_SAM_API_KEY: expected printable ASCII"
    assert not service.requests


@pytest.mark.parametrize("status", [429, 503])
def test_busy_service_is_retried_as_it_asks(service, run, waits, status):
    service.answers = [problem(status, **{"Retry-After": "2"}), problem(status, **{"Retry-After": "7"}), FOUND]
    assert run("--point", "1,1") is None
    assert waits == [2, 7]
    assert len({json.dumps(body) for _, _, body in service.requests}) == 1


def test_retries_are_limited(service, run, waits):
    service.answers = [problem(503, "32 requests wait already", **{"Retry-After": "1"})]
    assert run("--point", "1,1") == "error: 503: 32 requests wait already (request the-request)"
    assert waits == [1] * 5


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (problem(422, "expected this,\n  got that"), "error: 422: expected this, got that (request the-request)"),
        (problem(503), "error: 503: not now (request the-request)"),
        (problem(500, **{"Retry-After": "1"}), "error: 500: not now (request the-request)"),
        ((502, {"X-Request-ID": "1"}, b"<h1>Bad Gateway</h1>\n"), "error: 502: <h1>Bad Gateway</h1> (request 1)"),
        ((307, {"Location": "http://a.example"}, b""), "error: 307: (request None)"),
    ],
    ids=["invalid", "busy without Retry-After", "failed", "gateway", "redirect"],
)
def test_other_errors_are_printed_in_one_line_and_not_retried(service, run, waits, answer, error):
    service.answers = [answer]
    assert run("--point", "1,1") == error
    assert not waits
    assert len(service.requests) == 1
