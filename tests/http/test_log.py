"""Log lines about requests: they cannot be forged, show no sent values, and name callers that
guess keys.
"""

import asyncio
import io
import json
import logging
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from bentoml._internal.log import DATE_FORMAT, TRACED_LOG_FORMAT, TraceRecordFilter
from bentoml._internal.server.http.access import AccessLogMiddleware

from tests.fuzz.hostile_text import HOSTILE, MARK, hostile_texts, is_forged
from tests.http.asgi import ADDRESS, messages_of
from tests.unit.utils.edge.fakes import Clock
from utils.api.answers import REFUSAL_LOG
from utils.api.requests import EmbedRequest, EverythingRequest, ImageFields, SegmentRequest
from utils.edge.keys import ApiKeys
from utils.edge.middleware.access import ApiKeyMiddleware
from utils.errors import ImageNotCached, RejectedByModel
from utils.inference.request import ImageSource
from utils.inference.triton_segmenter import _problem
from utils.observability.logs import VARIABLE, configure_logging

MODELS: dict[str, type[ImageFields]] = {
    "/embed": EmbedRequest,
    "/everything": EverythingRequest,
    "/mobile_sam": SegmentRequest,
}
FIELDS = [(path, name) for path, model in MODELS.items() for name in model.model_fields]
HEADERS = [
    b"content-type",
    b"x-request-id",
    b"authorization",
    b"x-api-key",
    b"user-agent",
    b"host",
    b"traceparent",
]
TEXTS = [*HOSTILE, *hostile_texts(20, seed=5)]
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} ")


@pytest.fixture(params=["text", "json"])
def log(app, request, monkeypatch) -> Iterator[io.StringIO]:
    """The service's log, with all refusals."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging.Formatter(TRACED_LOG_FORMAT, DATE_FORMAT))
    handler.addFilter(TraceRecordFilter())
    logger = logging.getLogger("bentoml")
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "propagate", False)
    monkeypatch.setattr(logger, "level", logging.INFO)
    monkeypatch.setattr("utils.api.answers.REFUSAL_LOG._max_lines", 10**9)
    logging.root.manager._clear_cache()  # type: ignore[attr-defined]
    others = {
        other: other.formatter for other in [*logging.root.handlers, logging.lastResort] if other
    }
    monkeypatch.setenv(VARIABLE, request.param)
    configure_logging()
    yield written
    for other, formatter in others.items():
        other.setFormatter(formatter)
    logging.root.manager._clear_cache()  # type: ignore[attr-defined]


def ask_all(app, requests: Iterable[dict[str, Any]]) -> list[tuple[int, bytes]]:
    """Return status and body of each answer."""

    async def ask(request: dict[str, Any]) -> tuple[int, bytes]:
        sent = await messages_of(app, **request)
        return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])

    async def answers() -> list[tuple[int, bytes]]:
        return [await ask(request) for request in requests]

    return asyncio.run(answers())


@pytest.mark.parametrize(("path", "name"), FIELDS)
def test_field_values_forge_no_line_and_are_not_logged(app, segmenter, log, path, name):
    bodies = [json.dumps({name: text}).encode() for text in TEXTS]
    answers = ask_all(app, [{"path": path, "body": body} for body in bodies])
    assert {status for status, _ in answers} <= {200, 400, 422}
    lines = log.getvalue().splitlines()
    assert len(lines) == sum(status != 200 for status, _ in answers)
    assert all(f"{ADDRESS} POST {path} (request " in line for line in lines)
    assert not is_forged(log.getvalue())
    assert MARK not in log.getvalue()
    for _, answer in answers:
        assert not any(character in answer.decode() for character in "\x85\u2028\u202e\u200b")


@pytest.mark.parametrize("name", HEADERS, ids=bytes.decode)
def test_headers_forge_no_line_and_are_not_logged(app, segmenter, log, name):
    headers = [[(name, text.encode("utf-8", "surrogatepass"))] for text in TEXTS]
    headers += [[(name, text.encode("latin-1", "ignore"))] for text in TEXTS]
    answers = ask_all(app, [{"headers": header, "body": b'{"image_id": 1}'} for header in headers])
    assert {status for status, _ in answers} <= {403, 415, 422}
    assert len(log.getvalue().splitlines()) == len(answers)
    assert not is_forged(log.getvalue())
    assert MARK not in log.getvalue()


@pytest.mark.parametrize("part", ["path", "method", "address", "key", "access"])
def test_log_lines_are_printable_and_bounded(app, segmenter, log, part):
    requests: list[dict[str, Any]]
    if part == "access":
        requests = [
            {"path": f"/{text}", "headers": [(b"content-type", b"a/\x1b\nb")]} for text in TEXTS
        ]
    elif part == "key":
        requests = [{"body": json.dumps({text: 1}).encode()} for text in TEXTS]
    else:
        requests = [{part: f"/{text}"} for text in TEXTS]
    answers = ask_all(
        AccessLogMiddleware(app, has_request_content_type=True) if part == "access" else app,
        requests,
    )
    assert all(400 <= status < 500 for status, _ in answers)
    lines = log.getvalue().splitlines()
    assert len(lines) == len(answers) * (2 if part == "access" else 1)
    assert not is_forged(log.getvalue())
    # In JSON, the access log has one of a bounded number of paths.
    is_json_access = part == "access" and log.getvalue().startswith("{")
    assert (MARK in log.getvalue()) == (part != "path" and not is_json_access)
    assert max(map(len, lines)) < 5000


@pytest.fixture
def unbounded_errors(monkeypatch):
    monkeypatch.setattr("utils.api.answers.ERROR_LOG._max_lines", len(TEXTS))


def rejected(text: str) -> RejectedByModel:
    errors = [{"field": text, "expected": "an id", "got": text}]
    document = {"status": 404, "slug": "image-not-known", "title": "Not known", "errors": errors}
    return RejectedByModel(_problem(document, ImageSource(None, "a"), ()))


@pytest.mark.parametrize(
    ("error", "status"), [(rejected, 404), (ImageNotCached, 404), (RuntimeError, 500)]
)
@pytest.mark.usefixtures("unbounded_errors")
def test_errors_of_the_segmenter_forge_no_line(app, segmenter, log, error, status):
    for text in TEXTS:
        segmenter.error = error(text)
        ((answered, answer),) = ask_all(app, [{"body": b'{"image_id": "a"}'}])
        assert answered == status
        assert all(
            value.isprintable()
            for each in json.loads(answer).get("errors", ())
            for value in each.values()
        )
    assert log.getvalue().count(f"{ADDRESS} POST /embed (request ") == len(TEXTS)
    assert not is_forged(log.getvalue())


@pytest.mark.parametrize("log", ["text"], indirect=True)
@pytest.mark.parametrize(
    ("sent", "line"),
    [
        ({"path": "/secret"}, "POST other ({}): 404 not-found: unknown path"),
        (
            {"path": "/label-studio/setup"},
            "POST /label-studio/setup ({}): 404 not-found: unknown path",
        ),
        ({"method": "BREW"}, "BREW /embed ({}): 405 method-not-allowed: expected POST for /embed"),
        (
            {"headers": [(b"content-length", b"999999999999")]},
            (
                "POST /embed ({}): 413 body-too-large: expected a body of at most 32 MiB, got"
                " 953674.4 MiB"
            ),
        ),
        (
            {"headers": [(b"content-type", b"text/secret")]},
            "POST /embed ({}): 415 unsupported-media-type: expected Content-Type application/json",
        ),
        (
            {"body": b'{"image_id": ["secret"]}'},
            "POST /embed ({}): 422 invalid-request: image_id: expected a valid string",
        ),
        (
            {"body": b"secret"},
            "POST /embed ({}): 400 malformed-body: body: expected a JSON object in UTF-8",
        ),
    ],
    ids=["404", "404-off", "405", "413", "415", "422", "400"],
)
def test_refusal_is_logged_with_time_address_request_and_expectation(
    app, segmenter, log, sent, line
):
    headers = [*sent.get("headers", []), (b"x-request-id", b"the-request")]
    ((status, _),) = ask_all(app, [{**sent, "headers": headers}])
    assert f": {status} " in line
    written = log.getvalue()
    assert TIME.match(written)
    assert f"] {ADDRESS} {line.format('request the-request')}" in written
    assert "secret" not in written


@pytest.mark.parametrize("log", ["text"], indirect=True)
def test_address_that_guesses_keys_is_named(app, segmenter, log, monkeypatch):
    keys = ApiKeys.from_setting("name:a-key-of-enough-characters", None)
    assert keys
    monkeypatch.setattr(ApiKeyMiddleware, "_name_of", lambda _, headers: keys.name_of(headers))
    monkeypatch.setattr("utils.api.answers.REFUSAL_LOG._max_lines", 20)
    monkeypatch.setattr("utils.api.answers.REFUSAL_LOG._clock", Clock())
    guesses = [{"headers": [(b"x-api-key", b"guess-%d" % number)]} for number in range(50)]
    assert {status for status, _ in ask_all(app, guesses)} == {401}
    REFUSAL_LOG.summarise_ended(all_windows=True)
    lines = log.getvalue().splitlines()
    assert len(lines) == 21
    assert all(ADDRESS in line and TIME.match(line) for line in lines)
    assert f"unauthorized: 30 more in 0 s, at least 30 from {ADDRESS}" in lines[-1]
    assert "guess-" not in log.getvalue()
