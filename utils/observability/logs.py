"""Logs that callers can neither forge nor flood.

Untrusted text is escaped, in problem documents too. Lines are written as text, as JSON, or short
for a person at a terminal; repeated ones are summarised.
"""

import copy
import logging
import os
import re
from datetime import datetime, timezone

import orjson

from orchestrator.flood_log import FloodLog
from utils.observability.context import ADDRESS, KEY_NAME, RECORD, REQUEST_ID, TRACE_ID

logger = logging.getLogger("bentoml.mobile_sam")
"""Logger of the service."""
VARIABLE = "MOBILE_SAM_LOG_FORMAT"
"""Environment variable of the log format."""
DETAILS = ("bentoml.serving", "bentoml.mobile_sam.plan")
"""Loggers that omit INFO lines at a terminal: there one line says that the service is ready."""
ACCESS_LOG = "bentoml.access"
PAGE_FILE = re.compile(
    r"\S* \(scheme=\w+,method=(GET|HEAD),path=/(ui|static_content)/[^ ]* \(status=(200|304),"
)
"""Access-log lines of successful requests for files of the pages, which are omitted at a
terminal."""
MAX_MESSAGE_CHARACTERS, MAX_TRACEBACK_CHARACTERS = 4000, 20_000


def printable(text: str) -> str:
    r"""Replace unprintable characters by escapes such as `\n`, `\x1b`, `\u202e` or `\ud800`.

    Unprintable are control characters, line and paragraph separators, bidirectional overrides and
    other formatting characters, lone surrogates, unassigned and private-use code points, and all
    spaces but the ASCII one.
    """
    return (
        text
        if text.isprintable()
        else "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    )


def shown(text: str, limit: int = 80) -> str:
    """Return the printable text, or its start and length if it exceeds `limit` characters."""
    return _bounded(printable(text[:limit]), text, limit)


def quoted(text: str, limit: int = 80) -> str:
    """Return the text in quotation marks, like `repr`, bounded like `shown`."""
    return _bounded(repr(text[:limit]), text, limit)


def _bounded(safe: str, text: str, limit: int) -> str:
    quotes = 2
    if len(text) <= limit and len(safe) <= limit + quotes:
        return safe
    return f"{safe[:limit]}... ({len(text)} characters)"


class JsonFormatter(logging.Formatter):
    """Formatter of JSON lines: `time` (RFC 3339, UTC), `level`, `logger`, `process`, `message` and
    optional fields.

    Lines about a request have `method`, `path`, `address` and `caller`, and once known `image_id`
    and `weights`. The line in the access log, and that of a refusal, also have `status` and `ms`.
    """

    def __init__(self, component: str = "") -> None:
        """Set the `component` field; the default is BentoML's component."""
        super().__init__()
        self._component = component

    def format(self, record: logging.LogRecord) -> str:
        """Return the line without a line break."""
        fields = _request_fields(record)
        is_access = record.name == ACCESS_LOG and bool(fields)
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(
                timespec="milliseconds"
            ),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": "{method} {path} {status}".format(**fields)
            if is_access
            else record.getMessage(),
        }
        optional = {
            "component": self._component or getattr(record, "component", "").strip("[]"),
            "request_id": REQUEST_ID.get(),
            "trace_id": TRACE_ID.get(),
            **fields,
            "error": record.exc_info and (record.exc_text or self.formatException(record.exc_info)),
        }
        line |= {name: value for name, value in optional.items() if value}
        return orjson.dumps(line, default=str).decode()


def _request_fields(record: logging.LogRecord) -> dict[str, object]:
    """Return what a line says in fields of the request that it is about; empty outside of
    requests.
    """
    request = RECORD.get()
    if request is None or getattr(record, "is_summary", False):
        return {}
    fields: dict[str, object] = {
        "method": request.method,
        "path": request.path,
        "address": ADDRESS.get(),
        "caller": KEY_NAME.get(),
        "image_id": request.image_id,
        "weights": request.weights,
    }
    if record.name == ACCESS_LOG:
        fields |= {"status": request.status, "ms": request.ms}
    if refusal := getattr(record, "refusal", None):
        fields |= {**refusal, "ms": request.ms}
    return fields


class ConsoleFormatter(logging.Formatter):
    """Formatter of lines without time; only warnings and errors have their level."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line without a line break."""
        text = super().format(record)
        return text if record.levelno <= logging.INFO else f"{record.levelname.lower()}: {text}"


class UnforgeableFormatter(logging.Formatter):
    """Formatter that makes records safe for another formatter.

    Each message becomes one printable line, and lines of tracebacks are printable and indented, so
    that text from outside can neither begin a line nor control the terminal. The length of both is
    limited.
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
    """Indent a traceback, so that none of its lines looks like a record; shorten a long one in
    the middle.
    """
    if len(trace) > MAX_TRACEBACK_CHARACTERS:
        half = MAX_TRACEBACK_CHARACTERS // 2
        trace = f"{trace[:half]}\n...\n{trace[-half:]}"
    return "\n".join(f"    {printable(line)}" for line in trace.split("\n"))


def configure_logging(component: str = "") -> None:
    """Install the formatters on all handlers of this process, including BentoML's."""
    chosen = {"json": JsonFormatter(component), "console": ConsoleFormatter()}.get(
        os.environ.get(VARIABLE, "")
    )
    if isinstance(chosen, ConsoleFormatter):
        for name in DETAILS:
            logging.getLogger(name).setLevel(logging.WARNING)
        logging.getLogger(ACCESS_LOG).addFilter(_is_no_page_file)
    named = [logging.getLogger(name) for name in logging.root.manager.loggerDict]
    handlers = [handler for logger in [logging.root, *named] for handler in logger.handlers]
    for handler in [*handlers, *filter(None, [logging.lastResort])]:
        if chosen or not isinstance(handler.formatter, UnforgeableFormatter):
            handler.setFormatter(
                UnforgeableFormatter(chosen or handler.formatter or logging.Formatter())
            )


def _is_no_page_file(record: logging.LogRecord) -> bool:
    return not PAGE_FILE.match(record.getMessage())


ERROR_LOG = FloodLog(logger, max_lines=5, window_s=10, level=logging.ERROR)
"""Errors of Triton and of the service itself, which an outage repeats for each request."""
