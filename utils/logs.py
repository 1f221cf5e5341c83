"""Log lines as JSON, a line each, where that is set: for what collects logs and should not have to parse prose."""

from __future__ import annotations

import logging
import os
from datetime import datetime, timezone

import orjson

from utils.edge.callers import REQUEST_ID, TRACE_ID

VARIABLE = "MOBILE_SAM_LOG_FORMAT"
"""Read here and not from the settings by the watchdog, which has no use for the rest of them."""


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
            line["error"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def log_as_set(component: str = "") -> None:
    """Where JSON is set, have all that this process logs from now on, by BentoML's handlers and others, be JSON.

    Args:
        component: as of `JsonFormatter`.
    """
    if os.environ.get(VARIABLE) != "json":
        return
    formatter = JsonFormatter(component)
    named = [logging.getLogger(name) for name in logging.root.manager.loggerDict]
    for logger in [logging.root, *named]:
        for handler in logger.handlers:
            handler.setFormatter(formatter)
