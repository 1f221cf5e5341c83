"""Log lines as text and JSON, escaping of untrusted text, and summaries of repeated lines."""

import io
import json
import logging
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

import pytest

from orchestrator.flood_log import FloodLog
from tests.fuzz.hostile_text import HOSTILE, MARK, hostile_texts, is_forged
from tests.unit.utils.edge.fakes import Clock
from utils.observability.context import (
    ADDRESS,
    KEY_NAME,
    RECORD,
    REQUEST_ID,
    TRACE_ID,
    RequestRecord,
)
from utils.observability.logs import (
    MAX_MESSAGE_CHARACTERS,
    MAX_TRACEBACK_CHARACTERS,
    VARIABLE,
    JsonFormatter,
    configure_logging,
    printable,
    quoted,
    shown,
)


class Log(NamedTuple):
    """A logger with its own handler, and the output of the handler."""

    logger: logging.Logger
    output: io.StringIO

    @property
    def text(self) -> str:
        return self.output.getvalue()

    @property
    def document(self) -> dict:
        """The only line, in JSON."""
        (line,) = self.text.splitlines()
        return dict(json.loads(line))


@pytest.fixture
def configured(monkeypatch) -> Iterator[Callable[[str], Log]]:
    """Return a function that sets the log format; the formatters of other handlers are restored."""
    before = {
        handler: handler.formatter
        for handler in [*logging.root.handlers, logging.lastResort]
        if handler
    }
    log = Log(logging.getLogger("a.logger.of.this.test"), io.StringIO())
    handler = logging.StreamHandler(log.output)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    monkeypatch.setattr(log.logger, "handlers", [handler])
    monkeypatch.setattr(log.logger, "propagate", False)

    def configure(log_format: str) -> Log:
        monkeypatch.setenv(VARIABLE, log_format)
        configure_logging()
        return log

    yield configure
    for other, formatter in before.items():
        other.setFormatter(formatter)


each_format = pytest.mark.parametrize("log_format", ["text", "json", "console"])


def test_json_line_is_a_document(configured):
    log = configured("json")
    log.logger.error("%d\nlines \u00e9", 2)
    assert log.document["message"] == "2\\nlines \u00e9"
    assert (log.document["level"], log.document["logger"]) == ("error", "a.logger.of.this.test")
    assert datetime.fromisoformat(log.document["time"]).utcoffset() == timedelta(0)
    assert not log.document.keys() & {"request_id", "trace_id", "component", "error"}


def test_json_line_has_the_ids_of_request_and_trace_and_the_error(configured):
    log = configured("json")
    tokens = [
        (variable, variable.set(f"of {variable.name}")) for variable in (REQUEST_ID, TRACE_ID)
    ]
    try:
        raise ZeroDivisionError("by nothing")
    except ZeroDivisionError:
        log.logger.exception("failed")
    for variable, token in tokens:
        variable.reset(token)
    assert (log.document["request_id"], log.document["trace_id"]) == (
        "of request_id",
        "of trace_id",
    )
    assert log.document["error"].endswith("ZeroDivisionError: by nothing")


@pytest.fixture
def request_record() -> Iterator[RequestRecord]:
    """Context of a request of a key's name."""
    record = RequestRecord("POST", "/mobile_sam")
    request, caller, address = RECORD.set(record), KEY_NAME.set("alice"), ADDRESS.set("10.0.0.1")
    yield record
    RECORD.reset(request)
    KEY_NAME.reset(caller)
    ADDRESS.reset(address)


ABOUT = {"method": "POST", "path": "/mobile_sam", "address": "10.0.0.1", "caller": "alice"}


def test_json_line_of_the_access_log_has_the_request_in_fields(
    configured, request_record, monkeypatch
):
    monkeypatch.setattr("utils.observability.logs.ACCESS_LOG", "a.logger.of.this.test")
    log = configured("json")
    request_record.status, request_record.image_id, request_record.weights = (
        200,
        "0" * 64,
        "official",
    )
    log.logger.warning(
        "%s (%s) (%s) %.3fms", "10.0.0.1:5", "scheme=http,method=POST", "status=200", 1.5
    )
    line = log.document
    assert line["message"] == "POST /mobile_sam 200"
    assert {name: line[name] for name in ABOUT} == ABOUT
    assert (line["status"], line["image_id"], line["weights"]) == (200, "0" * 64, "official")
    assert isinstance(line["ms"], float)
    assert line["ms"] > 0


def test_json_line_in_a_request_names_it_and_keeps_its_message(configured, request_record):
    log = configured("json")
    log.logger.warning("a remark")
    assert log.document["message"] == "a remark"
    assert {name: log.document[name] for name in ABOUT} == ABOUT
    assert not log.document.keys() & {"status", "ms", "image_id", "weights"}


def test_json_line_of_a_refusal_has_status_and_reason_and_a_summary_no_request(
    configured, request_record, monkeypatch
):
    log = configured("json")
    monkeypatch.setattr(log.logger, "level", logging.INFO)
    flood = FloodLog(log.logger, max_lines=1, window_s=10, clock=Clock())
    for _ in range(3):
        flood.log("unauthorized", "a line", "10.0.0.1", 401)
    flood.summarise_ended(all_windows=True)
    refusal, summary = map(json.loads, log.text.splitlines())
    assert (
        refusal.items()
        >= {
            **ABOUT,
            "status": 401,
            "reason": "unauthorized",
            "message": "a line",
        }.items()
    )
    assert refusal["ms"] > 0
    assert summary["message"] == "unauthorized: 2 more in 0 s, at least 2 from 10.0.0.1"
    assert not summary.keys() & {*ABOUT, "status", "ms"}


@pytest.mark.parametrize("log_format", ["text", "console"])
def test_other_formats_have_their_lines_unchanged_in_a_request(
    configured, request_record, log_format
):
    log = configured(log_format)
    log.logger.error(
        "%s (%s) (%s) %.3fms", "10.0.0.1:5", "scheme=http,method=POST", "status=200", 1.5
    )
    level = "ERROR " if log_format == "text" else "error: "
    assert log.text == f"{level}10.0.0.1:5 (scheme=http,method=POST) (status=200) 1.500ms\n"


def test_console_lines_are_short_and_without_details(configured, monkeypatch):
    monkeypatch.setattr("utils.observability.logs.DETAILS", ("a.logger.of.this.test.details",))
    log = configured("console")
    monkeypatch.setattr(log.logger, "level", logging.INFO)
    log.logger.info("ready")
    log.logger.warning("slow")
    for level in (logging.INFO, logging.ERROR):
        log.logger.getChild("details").log(level, "a detail")
    assert log.text == "ready\nwarning: slow\nerror: a detail\n"


def test_console_omits_successful_requests_for_files_of_the_page(configured, monkeypatch):
    monkeypatch.setattr("utils.observability.logs.ACCESS_LOG", "a.logger.of.this.test.access")
    log = configured("console")
    access = log.logger.getChild("access")
    line = (
        "127.0.0.1:9 (scheme=http,method=%s,path=%s,type=,length=)"
        " (status=%d,type=text/css,length=9) 1.000ms"
    )
    for request in (("GET", "/ui/app.js", 200), ("HEAD", "/static_content/swagger-ui.css", 304)):
        access.warning(line, *request)
    assert not log.text
    for request in (
        ("GET", "/ui/app.js", 500),
        ("POST", "/ui/app.js", 200),
        ("POST", "/embed", 200),
    ):
        access.warning(line, *request)
    assert len(log.text.splitlines()) == 3


@each_format
def test_no_hostile_text_forges_a_line(configured, log_format):
    configured(log_format)
    log = configured(log_format)
    texts = [*HOSTILE, *hostile_texts(2000, seed=3)]
    for text in texts:
        log.logger.warning(text)
        log.logger.warning("with an argument: %s", text)
    assert log.text.count("\n") == 2 * len(texts)
    assert MARK in log.text
    assert not is_forged(log.text)
    log.text.encode()


@each_format
def test_no_exception_forges_a_line(configured, log_format):
    log = configured(log_format)
    texts = [*HOSTILE, *hostile_texts(300, seed=4)]
    for text in texts:
        try:
            raise ValueError(text) from KeyError(text)
        except ValueError:
            log.logger.exception("failed", stack_info=True)
    assert MARK in log.text
    assert not is_forged(log.text)
    assert sum(not line.startswith("    ") for line in log.text.splitlines()) == len(texts)


def test_long_messages_and_tracebacks_are_truncated(configured):
    log = configured("text")
    try:
        raise ValueError("x" * 1_000_000 + "the end")
    except ValueError:
        log.logger.exception("y" * 1_000_000)
    assert len(log.text) < MAX_MESSAGE_CHARACTERS + MAX_TRACEBACK_CHARACTERS + 200
    assert "... (1000000 characters)\n    Traceback (most recent call last):\n" in log.text
    assert log.text.endswith("xthe end\n")


def test_other_handlers_get_the_original_record(configured, monkeypatch):
    log = configured("")
    seen: list[logging.LogRecord] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", seen.append)
    monkeypatch.setattr(log.logger, "handlers", [*log.logger.handlers, handler])
    log.logger.error("two\n%s", "lines")
    assert seen[0].getMessage() == "two\nlines"
    assert seen[0].args == ("lines",)
    assert log.text == "ERROR two\\nlines\n"  # text is the default


def test_component_is_given_or_bentomls():
    record = logging.LogRecord("name", logging.INFO, "", 0, "text", (), None)
    assert (
        json.loads(JsonFormatter("triton watchdog").format(record))["component"]
        == "triton watchdog"
    )
    record.component = "[api_server:mobile_sam:1]"
    assert json.loads(JsonFormatter().format(record))["component"] == "api_server:mobile_sam:1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x\n[ERROR] forged", "x\\n[ERROR] forged"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\r\x85\u2028\u2029", "\\r\\x85\\u2028\\u2029"),
        ("\u202eabc\u2066", "\\u202eabc\\u2066"),
        ("\ud800", "\\ud800"),
        ("\u200b\u00a0\ufeff", "\\u200b\\xa0\\ufeff"),
        ("\U000e0041", "\\U000e0041"),
        *[("plain text, \u00e9\u4e2d\U0001f600, with a \\ and 'quotes'",) * 2],
    ],
    ids=ascii,
)
def test_unprintable_characters_are_escaped(text, expected):
    assert printable(text) == shown(text) == expected


@pytest.mark.parametrize("make", [shown, quoted])
@pytest.mark.parametrize("text", ["x" * 500, "\u202e" * 500, "\n" * 81])
def test_long_text_is_cut_and_its_length_shown(make, text):
    assert len(make(text)) <= 80 + len("... (500 characters)")
    assert make(text).endswith(f"... ({len(text)} characters)")
    assert shown("\u202e" * 80) == "\\u202e" * 13 + "\\u... (80 characters)"
    assert quoted("it's \n") == '"it\'s \\n"'
