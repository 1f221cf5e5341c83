"""Log lines that nobody outside can forge, as text or, for programs that collect logs, as JSON."""

from __future__ import annotations

import copy
import logging
import os
from datetime import datetime, timezone

import orjson

from utils.edge.callers import REQUEST_ID, TRACE_ID
from utils.text import printable, shown

VARIABLE = "MOBILE_SAM_LOG_FORMAT"
"""Read here and not from the settings by the watchdog, which has no use for the rest of them."""
MAX_MESSAGE, MAX_TRACEBACK = 4000, 20_000
"""Characters of a record's message, and of its traceback, that are logged."""


class JsonFormatter(logging.Formatter):
    """`time` (RFC 3339, UTC), `level`, `logger`, `process`, `message`, and what else is known of the line."""

    def __init__(self, component: str = "") -> None:
        """Make one.

        Args:
            component: which program of the service logs, where its loggers' names do not tell.
        """
        super().__init__()
        self._component = component

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        if component := self._component or getattr(record, "component", "").strip("[]"):
            line["component"] = component
        if request_id := REQUEST_ID.get():
            line["request_id"] = request_id
        if trace_id := TRACE_ID.get():
            line["trace_id"] = trace_id
        if record.exc_info:
            line["error"] = record.exc_text or self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


class UnforgeableFormatter(logging.Formatter):
    """Another formatter's output, in which no text from outside can begin a line or change how the log is displayed.

    A message is one printable line. Lines of a traceback are printable and indented. Both are bounded in length.
    """

    def __init__(self, formatter: logging.Formatter) -> None:
        """Wrap a formatter.

        Args:
            formatter: gets records whose message and traceback are safe.
        """
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        """The record as the other formatter writes it."""
        safe = copy.copy(record)
        safe.msg, safe.args = shown(record.getMessage(), MAX_MESSAGE), None
        trace = self.formatException(record.exc_info) if record.exc_info else record.exc_text
        safe.exc_text = _indented(trace) if trace else None
        safe.stack_info = _indented(record.stack_info) if record.stack_info else None
        return self._formatter.format(safe)


def _indented(trace: str) -> str:
    """A traceback whose lines cannot be taken for records; of a long one the beginning and the end."""
    if len(trace) > MAX_TRACEBACK:
        trace = f"{trace[: MAX_TRACEBACK // 2]}\n...\n{trace[-MAX_TRACEBACK // 2 :]}"
    return "\n".join(f"    {printable(line)}" for line in trace.split("\n"))


def log_as_set(component: str = "") -> None:
    """Have all handlers of this process, BentoML's and others, write unforgeable lines, and JSON where that is set.

    Args:
        component: as of `JsonFormatter`.
    """
    as_json = JsonFormatter(component) if os.environ.get(VARIABLE) == "json" else None
    named = [logging.getLogger(name) for name in logging.root.manager.loggerDict]
    handlers = [handler for logger in [logging.root, *named] for handler in logger.handlers]
    for handler in [*handlers, *filter(None, [logging.lastResort])]:
        if as_json or not isinstance(handler.formatter, UnforgeableFormatter):
            handler.setFormatter(UnforgeableFormatter(as_json or handler.formatter or logging.Formatter()))
