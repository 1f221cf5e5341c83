"""Log lines as JSON."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from utils.edge.callers import REQUEST_ID, TRACE_ID
from utils.logs import VARIABLE, JsonFormatter, log_as_set


@pytest.fixture
def logger() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    """A logger with a handler of its own, and what that writes."""
    written = io.StringIO()
    made = logging.getLogger("a.logger.of.this.test")
    handler = logging.StreamHandler(written)
    made.addHandler(handler)
    made.propagate = False
    yield made, written
    made.removeHandler(handler)


@pytest.fixture(autouse=True)
def formatters() -> Iterator[None]:
    """Handlers of other tests keep their formatters."""
    before = {handler: handler.formatter for handler in logging.root.handlers}
    yield
    for handler, formatter in before.items():
        handler.setFormatter(formatter)


def line(logger, monkeypatch, message: str, *arguments, **options) -> dict:
    monkeypatch.setenv(VARIABLE, "json")
    log_as_set()
    logger[0].error(message, *arguments, **options)
    (written,) = logger[1].getvalue().splitlines()
    return dict(json.loads(written))


def test_a_line_is_a_document(logger, monkeypatch):
    told = line(logger, monkeypatch, "%d\nlines \u00e9", 2)
    assert told["message"] == "2\nlines \u00e9"
    assert (told["level"], told["logger"]) == ("error", "a.logger.of.this.test")
    assert datetime.fromisoformat(told["time"]).utcoffset() == timedelta(0)
    assert not told.keys() & {"request_id", "trace_id"}
    assert "component" not in told


@pytest.mark.parametrize(("name", "variable"), [("request_id", REQUEST_ID), ("trace_id", TRACE_ID)])
def test_a_request_is_named(logger, monkeypatch, name, variable):
    token = variable.set("the-request")
    try:
        assert line(logger, monkeypatch, "refused")[name] == "the-request"
    finally:
        variable.reset(token)


def test_an_exception_comes_with_its_trace(logger, monkeypatch):
    try:
        raise ZeroDivisionError("by nothing")
    except ZeroDivisionError:
        told = line(logger, monkeypatch, "failed", exc_info=True)
    assert told["error"].endswith("ZeroDivisionError: by nothing")


@pytest.mark.parametrize("value", ["text", ""])
def test_without_the_setting_nothing_changes(logger, monkeypatch, value):
    monkeypatch.setenv(VARIABLE, value)
    log_as_set()
    logger[0].error("as it was")
    assert logger[1].getvalue() == "as it was\n"


def test_the_component_is_the_programs_or_bentomls():
    record = logging.LogRecord("name", logging.INFO, "", 0, "text", (), None)
    assert json.loads(JsonFormatter("triton watchdog").format(record))["component"] == "triton watchdog"
    record.component = "[api_server:mobile_sam:1]"
    assert json.loads(JsonFormatter().format(record))["component"] == "api_server:mobile_sam:1"
