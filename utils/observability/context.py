"""Request context: caller, address and request id, set by the edge and readable wherever a request is handled."""

import ipaddress
import re
import uuid
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass

from starlette.types import Scope

CALLER: ContextVar[str] = ContextVar("caller", default="")
"""Name of the request's API key; empty where no keys are used."""
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""Id of the request, as in the log and in the answer."""
ADDRESS: ContextVar[str] = ContextVar("address", default="unknown")
"""The caller's address, as returned by `address`."""
TARGET: ContextVar[str] = ContextVar("target", default="")
"""Method and path of the request, bounded and printable."""
TRACE_ID: ContextVar[str] = ContextVar("trace_id", default="")
"""OpenTelemetry trace id, 32 hexadecimal digits; empty where the request is not recorded in a trace."""


@dataclass
class AnswerReason:
    """Reason of an answer for metrics and traces: the slug of its problem, or `ok`."""

    slug: str = "ok"


REASON: ContextVar[AnswerReason] = ContextVar("reason")
"""Set once per request; whoever makes a problem document changes its slug."""

REQUEST_ID_HEADER = b"x-request-id"
VALID_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
"""Ids that are safe in a log line and in a header."""
IPV6_NETWORK = 64
"""Prefix length of the network that one household or host usually gets."""


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the caller's own request id if it is valid, else a new one."""
    for name, value in headers:
        if name == REQUEST_ID_HEADER and VALID_REQUEST_ID.fullmatch(value):
            return value.decode()
    return uuid.uuid4().hex


def address(scope: Scope) -> str:
    """Return the caller's address (IPv4) or network (IPv6).

    Behind a trusted proxy (uvicorn's `FORWARDED_ALLOW_IPS`) it is the address that the proxy forwards.
    """
    client = scope.get("client")
    return network(str(client[0])) if client else "unknown"


def network(ip: str) -> str:
    """Return the /64 network of an IPv6 address, whose owner has 2^64 addresses; return other texts unchanged."""
    try:
        parsed = ipaddress.ip_address(ip)
    except ValueError:
        return ip
    return ip if parsed.version == 4 else str(ipaddress.ip_network((parsed, IPV6_NETWORK), strict=False))
