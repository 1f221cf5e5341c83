"""Log lines as text and JSON."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from datetime import datetime, timedelta

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


@pytest.fixture
def logger() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    """A logger with its own handler, and the output of the handler."""
    output = io.StringIO()
    logger = logging.getLogger("a.logger.of.this.test")
    handler = logging.StreamHandler(output)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.propagate = False
    yield logger, output
    logger.removeHandler(handler)


@pytest.fixture(autouse=True)
def formatters() -> Iterator[None]:
    """Restore the formatters of other handlers."""
    before = {handler: handler.formatter for handler in [*logging.root.handlers, logging.lastResort] if handler}
    yield
    for handler, formatter in before.items():
        handler.setFormatter(formatter)


def line(logger, monkeypatch, message: str, *arguments, **options) -> dict:
    monkeypatch.setenv(VARIABLE, "json")
    configure_logging()
    logger[0].error(message, *arguments, **options)
    (text,) = logger[1].getvalue().splitlines()
    return dict(json.loads(text))


def test_json_line_is_a_document(logger, monkeypatch):
    document = line(logger, monkeypatch, "%d\nlines \u00e9", 2)
    assert document["message"] == "2\\nlines \u00e9"
    assert (document["level"], document["logger"]) == ("error", "a.logger.of.this.test")
    assert datetime.fromisoformat(document["time"]).utcoffset() == timedelta(0)
    assert not document.keys() & {"request_id", "trace_id"}
    assert "component" not in document


@pytest.mark.parametrize(("name", "variable"), [("request_id", REQUEST_ID), ("trace_id", TRACE_ID)])
def test_json_line_has_request_and_trace_ids(logger, monkeypatch, name, variable):
    token = variable.set("the-request")
    try:
        assert line(logger, monkeypatch, "refused")[name] == "the-request"
    finally:
        variable.reset(token)


def test_json_line_has_the_traceback(logger, monkeypatch):
    try:
        raise ZeroDivisionError("by nothing")
    except ZeroDivisionError:
        document = line(logger, monkeypatch, "failed", exc_info=True)
    assert document["error"].endswith("ZeroDivisionError: by nothing")


@pytest.mark.parametrize("value", ["text", ""])
def test_lines_are_text_by_default(logger, monkeypatch, value):
    monkeypatch.setenv(VARIABLE, value)
    configure_logging()
    logger[0].error("as it %s", "was")
    assert logger[1].getvalue() == "ERROR as it was\n"


def test_console_lines_are_short_and_without_details(logger, monkeypatch):
    monkeypatch.setenv(VARIABLE, "console")
    monkeypatch.setattr("utils.observability.logs.DETAILS", ("a.logger.of.this.test.details",))
    configure_logging()
    logger[0].setLevel(logging.INFO)
    logger[0].info("ready")
    logger[0].warning("slow")
    for level in (logging.INFO, logging.ERROR):
        logger[0].getChild("details").log(level, "a detail")
    assert logger[1].getvalue() == "ready\nwarning: slow\nerror: a detail\n"


@pytest.mark.parametrize("value", ["text", "json", "console"])
def test_no_hostile_text_forges_a_line(logger, monkeypatch, value):
    monkeypatch.setenv(VARIABLE, value)
    configure_logging()
    configure_logging()
    for text in [*HOSTILE, *hostile_texts(10_000, seed=3)]:
        logger[0].warning(text)
        logger[0].warning("with an argument: %s", text)
    log = logger[1].getvalue()
    assert log.count("\n") == 2 * (len(HOSTILE) + 10_000)
    assert MARK in log
    assert not is_forged(log)
    log.encode()


@pytest.mark.parametrize("value", ["text", "json", "console"])
def test_no_exception_forges_a_line(logger, monkeypatch, value):
    monkeypatch.setenv(VARIABLE, value)
    configure_logging()
    for text in [*HOSTILE, *hostile_texts(300, seed=4)]:
        try:
            raise ValueError(text) from KeyError(text)
        except ValueError:
            logger[0].exception("failed", stack_info=True)
    log = logger[1].getvalue()
    assert MARK in log
    assert not is_forged(log)
    unindented = [line for line in log.splitlines() if not line.startswith("    ")]
    assert len(unindented) == len(HOSTILE) + 300


def test_long_messages_and_tracebacks_are_truncated(logger, monkeypatch):
    monkeypatch.setenv(VARIABLE, "text")
    configure_logging()
    try:
        raise ValueError("x" * 1_000_000 + "the end")
    except ValueError:
        logger[0].exception("y" * 1_000_000)
    log = logger[1].getvalue()
    assert len(log) < MAX_MESSAGE_CHARACTERS + MAX_TRACEBACK_CHARACTERS + 200
    assert "... (1000000 characters)\n    Traceback (most recent call last):\n" in log
    assert log.endswith("xthe end\n")


def test_other_handlers_get_the_original_record(logger, monkeypatch):
    monkeypatch.setenv(VARIABLE, "text")
    configure_logging()
    seen: list[logging.LogRecord] = []
    handler = logging.Handler()
    monkeypatch.setattr(handler, "emit", seen.append)
    logger[0].addHandler(handler)
    logger[0].error("two\n%s", "lines")
    logger[0].removeHandler(handler)
    assert seen[0].getMessage() == "two\nlines"
    assert seen[0].args == ("lines",)


def test_component_is_given_or_bentomls():
    record = logging.LogRecord("name", logging.INFO, "", 0, "text", (), None)
    assert json.loads(JsonFormatter("triton watchdog").format(record))["component"] == "triton watchdog"
    record.component = "[api_server:mobile_sam:1]"
    assert json.loads(JsonFormatter().format(record))["component"] == "api_server:mobile_sam:1"
