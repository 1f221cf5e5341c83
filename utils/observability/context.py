"""Request context: caller and request id, set by the edge and readable wherever a request is handled."""

import re
import uuid
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass

CALLER: ContextVar[str] = ContextVar("caller", default="")
"""Name of the request's API key; empty where no keys are used."""
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""Id of the request, as in the log and in the answer."""
ADDRESS: ContextVar[str] = ContextVar("address", default="unknown")
"""The caller's address, as returned by `utils.edge.guard.address`."""
TARGET: ContextVar[str] = ContextVar("target", default="")
"""Method and path of the request, bounded and printable."""
TRACE_ID: ContextVar[str] = ContextVar("trace_id", default="")
"""OpenTelemetry trace id; empty where the request is not traced."""


@dataclass
class AnswerReason:
    """Reason of an answer for metrics and traces: the slug of its problem, or `ok`."""

    slug: str = "ok"


REASON: ContextVar[AnswerReason] = ContextVar("reason")
"""Set once per request; whoever makes a problem document changes its slug."""

REQUEST_ID_HEADER = b"x-request-id"
VALID_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
"""Ids that are safe in a log line and in a header."""


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the caller's own request id if it is valid, else a new one."""
    for name, value in headers:
        if name == REQUEST_ID_HEADER and VALID_REQUEST_ID.fullmatch(value):
            return value.decode()
    return uuid.uuid4().hex
