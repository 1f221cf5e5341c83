"""Violations that the fuzzer reports."""

import json

import pytest

from tests.fuzz.hammer import Record, Shot, report
from tests.fuzz.hostile_requests import FuzzRequest
from tests.fuzz.verdict import JSON, LINES, MULTIPART, PNG, PNG_SIGNATURE, PROBLEM, FuzzAnswer, faults

PARTS = b'--b\r\nContent-Disposition: form-data; name="mask"\r\n\r\n[]\r\n--b--\r\n'


def post(path: str = "/embed", method: str = "POST", *headers: tuple[str, str]) -> FuzzRequest:
    return FuzzRequest(method, path, headers, b"{}")


def problem(status: int, /, **members: object) -> FuzzAnswer:
    document = {"type": "urn:mobile-sam:x", "title": "X", "status": status, "detail": "x", **members}
    return FuzzAnswer(status, PROBLEM, json.dumps({k: v for k, v in document.items() if v is not None}).encode())


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        pytest.param(post(), problem(422), id="a problem"),
        pytest.param(post(), FuzzAnswer(200, JSON, b'{"image_id": "x"}'), id="an embedding"),
        pytest.param(post("/mobile_sam"), FuzzAnswer(200, MULTIPART, PARTS), id="parts"),
        pytest.param(post("/mobile_sam", "POST", ("Accept", PNG)), FuzzAnswer(200, PNG, PNG_SIGNATURE), id="a picture"),
        pytest.param(post("/everything?x=1"), FuzzAnswer(200, LINES, b'{"done": 1}\n{"result": {}}\n'), id="lines"),
        pytest.param(post("/", "GET"), FuzzAnswer(200, "text/html", b"<html>"), id="a page"),
        pytest.param(post("/no", "HEAD"), FuzzAnswer(404, PROBLEM, b""), id="a head without a body"),
    ],
)
def test_valid_answers_are_no_violations(request_, answer):
    assert faults(request_, answer) == []


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        pytest.param(post(), problem(500), id="500"),
        pytest.param(post(), problem(504), id="504"),
        pytest.param(post(), problem(503), id="busy"),
        pytest.param(post(), problem(429), id="too many"),
        pytest.param(post(), FuzzAnswer(404, "text/plain", b"Not Found"), id="a plain text error"),
        pytest.param(post("/", "GET", ("Upgrade", "websocket")), FuzzAnswer(403, "", b""), id="another protocol"),
        pytest.param(post(), FuzzAnswer(400, "", b""), id="an empty error"),
        pytest.param(post(), FuzzAnswer(422, PROBLEM, b"{"), id="a problem that is not JSON"),
        pytest.param(post(), problem(422, detail=None), id="a problem without a detail"),
        pytest.param(post(), problem(422, title=""), id="a problem without a title"),
        pytest.param(post(), problem(422, status=400), id="a problem of another status"),
        pytest.param(post(), problem(422, errors=["x" * 90] * 300), id="a huge problem"),
        pytest.param(post(), FuzzAnswer(200, "text/html", b"{}"), id="an embedding as a page"),
        pytest.param(post(), FuzzAnswer(200, JSON, b"[]"), id="an embedding that is not an object"),
        pytest.param(post("/mobile_sam"), FuzzAnswer(200, MULTIPART, PARTS[:-4]), id="truncated parts"),
        pytest.param(post("/mobile_sam"), FuzzAnswer(200, PNG, PNG_SIGNATURE), id="a picture that nobody asked for"),
        pytest.param(post("/mobile_sam", "POST", ("Accept", PNG)), FuzzAnswer(200, PNG, b"{}"), id="no picture"),
        pytest.param(
            post("/everything"), FuzzAnswer(200, LINES, b'{"problem": {"status": 500}}\n'), id="500 in a line"
        ),
    ],
)
def test_invalid_answers_are_violations(request_, answer):
    assert faults(request_, answer)


def test_violation_is_reported_with_the_options_to_reproduce_it(capsys):
    record = Record()
    record.add(Shot("--seed 1 --batch 7", post()), problem(422), 0.1)
    assert report(record, 1) == 0
    record.add(Shot("--seed 1 --batch 8", post()), problem(500), 0.1)
    record.add(Shot("corpus/bodies/x", post(), status=200), problem(422), 0.1)
    record.fail(Shot("--seed 1 --batch 9", post()), TimeoutError("timed out"))
    assert report(record, 1) == 1
    printed = capsys.readouterr().out
    assert "VIOLATION --seed 1 --batch 8: 500" in printed
    assert "VIOLATION corpus/bodies/x: 422 instead of 200" in printed
    assert "VIOLATION --seed 1 --batch 9: no answer, TimeoutError" in printed
    assert "3 violations" in printed
