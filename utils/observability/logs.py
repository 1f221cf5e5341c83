"""Log formatters whose lines cannot be forged by input, as text, as JSON, or short for a person at a terminal."""

import copy
import logging
import os
from datetime import datetime, timezone

import orjson

from utils.observability.context import REQUEST_ID, TRACE_ID
from utils.observability.text import printable, shown

VARIABLE = "MOBILE_SAM_LOG_FORMAT"
"""Environment variable of the log format."""
DETAILS = ("bentoml.serving", "bentoml.mobile_sam.plan")
"""Loggers whose INFO lines are not shown at a terminal, where one line says that the service is ready."""
MAX_MESSAGE_CHARACTERS, MAX_TRACEBACK_CHARACTERS = 4000, 20_000


class JsonFormatter(logging.Formatter):
    """Formatter of JSON lines: `time` (RFC 3339, UTC), `level`, `logger`, `process`, `message` and optional fields."""

    def __init__(self, component: str = "") -> None:
        """Set the `component` field; the default is BentoML's component."""
        super().__init__()
        self._component = component

    def format(self, record: logging.LogRecord) -> str:
        """Return the line without a line break."""
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


class ConsoleFormatter(logging.Formatter):
    """Formatter of lines without time; only warnings and errors have their level."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line without a line break."""
        text = super().format(record)
        return text if record.levelno <= logging.INFO else f"{record.levelname.lower()}: {text}"


class UnforgeableFormatter(logging.Formatter):
    """Formatter that makes records safe for another formatter.

    Each message becomes one printable line, and lines of tracebacks are printable and indented, so that text from
    outside can neither begin a line nor control the terminal. The length of both is limited.
    """

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        """Return the output of the other formatter."""
        safe = copy.copy(record)
        safe.msg, safe.args = shown(record.getMessage(), MAX_MESSAGE_CHARACTERS), None
        trace = self.formatException(record.exc_info) if record.exc_info else record.exc_text
        safe.exc_text = _indented(trace) if trace else None
        safe.stack_info = _indented(record.stack_info) if record.stack_info else None
        return self._formatter.format(safe)


def _indented(trace: str) -> str:
    """Indent a traceback, so that none of its lines looks like a record; shorten a long one in the middle."""
    if len(trace) > MAX_TRACEBACK_CHARACTERS:
        half = MAX_TRACEBACK_CHARACTERS // 2
        trace = f"{trace[:half]}\n...\n{trace[-half:]}"
    return "\n".join(f"    {printable(line)}" for line in trace.split("\n"))


def configure_logging(component: str = "") -> None:
    """Install the formatters on all handlers of this process, including BentoML's."""
    chosen = {"json": JsonFormatter(component), "console": ConsoleFormatter()}.get(os.environ.get(VARIABLE, ""))
    if isinstance(chosen, ConsoleFormatter):
        for name in DETAILS:
            logging.getLogger(name).setLevel(logging.WARNING)
    named = [logging.getLogger(name) for name in logging.root.manager.loggerDict]
    handlers = [handler for logger in [logging.root, *named] for handler in logger.handlers]
    for handler in [*handlers, *filter(None, [logging.lastResort])]:
        if chosen or not isinstance(handler.formatter, UnforgeableFormatter):
            handler.setFormatter(UnforgeableFormatter(chosen or handler.formatter or logging.Formatter()))
