"""Log lines as text and JSON."""

import io
import json
import logging
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

import pytest

from tests.fuzz.hostile_text import HOSTILE, MARK, hostile_texts, is_forged
from utils.observability.context import REQUEST_ID, TRACE_ID
from utils.observability.logs import (
    MAX_MESSAGE_CHARACTERS,
    MAX_TRACEBACK_CHARACTERS,
    VARIABLE,
    JsonFormatter,
    configure_logging,
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
    before = {handler: handler.formatter for handler in [*logging.root.handlers, logging.lastResort] if handler}
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


@pytest.mark.parametrize(("name", "variable"), [("request_id", REQUEST_ID), ("trace_id", TRACE_ID)])
def test_json_line_has_request_and_trace_ids(configured, name, variable):
    log = configured("json")
    token = variable.set("the-request")
    log.logger.error("refused")
    variable.reset(token)
    assert log.document[name] == "the-request"


def test_json_line_has_the_traceback(configured):
    log = configured("json")
    try:
        raise ZeroDivisionError("by nothing")
    except ZeroDivisionError:
        log.logger.exception("failed")
    assert log.document["error"].endswith("ZeroDivisionError: by nothing")


@pytest.mark.parametrize("log_format", ["text", ""])
def test_lines_are_text_by_default(configured, log_format):
    log = configured(log_format)
    log.logger.error("as it %s", "was")
    assert log.text == "ERROR as it was\n"


def test_console_lines_are_short_and_without_details(configured, monkeypatch):
    monkeypatch.setattr("utils.observability.logs.DETAILS", ("a.logger.of.this.test.details",))
    log = configured("console")
    monkeypatch.setattr(log.logger, "level", logging.INFO)
    log.logger.info("ready")
    log.logger.warning("slow")
    for level in (logging.INFO, logging.ERROR):
        log.logger.getChild("details").log(level, "a detail")
    assert log.text == "ready\nwarning: slow\nerror: a detail\n"


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
    log = configured("text")
    seen: list[logging.LogRecord] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", seen.append)
    monkeypatch.setattr(log.logger, "handlers", [*log.logger.handlers, handler])
    log.logger.error("two\n%s", "lines")
    assert seen[0].getMessage() == "two\nlines"
    assert seen[0].args == ("lines",)


def test_component_is_given_or_bentomls():
    record = logging.LogRecord("name", logging.INFO, "", 0, "text", (), None)
    assert json.loads(JsonFormatter("triton watchdog").format(record))["component"] == "triton watchdog"
    record.component = "[api_server:mobile_sam:1]"
    assert json.loads(JsonFormatter().format(record))["component"] == "api_server:mobile_sam:1"
