"""Who asks, and which request this is: set by the edge, readable wherever a request is worked on."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from contextvars import ContextVar

CALLER: ContextVar[str] = ContextVar("caller", default="")
"""Name of the API key that the request came with; empty where none is needed."""
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""What the log and the answer call the request."""
ADDRESS: ContextVar[str] = ContextVar("address", default="unknown")
"""The caller's address, as `utils.edge.guard.address` tells it."""
TARGET: ContextVar[str] = ContextVar("target", default="")
"""Method and path of the request, bounded and printable."""
TRACE_ID: ContextVar[str] = ContextVar("trace_id", default="")
"""Of OpenTelemetry; empty where the request is not traced."""

HEADER = b"x-request-id"
USABLE = re.compile(rb"[A-Za-z0-9._-]{1,128}")
"""Ids that may stand in a log and in a header as they came."""


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The caller's own id of the request, or a new one where there is none that can be used."""
    for name, value in headers:
        if name == HEADER and USABLE.fullmatch(value):
            return value.decode()
    return uuid.uuid4().hex
