"""Request context: caller, address and request id, set by the edge and readable wherever a
request is handled.
"""

import time
from contextvars import ContextVar
from dataclasses import dataclass, field

KEY_NAME: ContextVar[str] = ContextVar("key_name", default="")
"""Name of the request's API key, which owns what is stored for it; empty where no keys are used."""
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
"""Id of the request, as in the log and in the answer."""
ADDRESS: ContextVar[str] = ContextVar("address", default="unknown")
"""The caller's address, as returned by `utils.edge.connections.address`."""
TARGET: ContextVar[str] = ContextVar("target", default="")
"""Method and path of the request, bounded and printable."""
IMAGE_ID: ContextVar[str] = ContextVar("image_id", default="")
"""The header `X-Image-Id`, well-formed and not yet compared with the image; empty without one."""
TRACE_ID: ContextVar[str] = ContextVar("trace_id", default="")
"""OpenTelemetry trace id, 32 hexadecimal digits; empty where the request is not recorded in a
trace."""


def caller() -> str:
    """Return who shares with others: the name of the request's key, without keys its address."""
    return KEY_NAME.get() or ADDRESS.get()


@dataclass
class RequestRecord:
    """What JSON log lines say of a request in fields, besides caller and address; completed as
    it is handled.
    """

    method: str
    path: str
    """One of a bounded number of paths."""
    status: int = 0
    """Status of the answer; 0 before it starts."""
    image_id: str = ""
    weights: str = ""
    """Name of the weights that the answer comes from."""
    began: float = field(default_factory=time.perf_counter)

    @property
    def ms(self) -> float:
        """Return the milliseconds since the request's head was read."""
        return round(1000 * (time.perf_counter() - self.began), 3)


RECORD: ContextVar[RequestRecord | None] = ContextVar("record", default=None)
"""Set once per request; None outside of requests."""


@dataclass
class AnswerReason:
    """Reason of an answer for metrics and traces: the slug of its problem, or `ok`."""

    slug: str = "ok"


REASON: ContextVar[AnswerReason] = ContextVar("reason")
"""Set once per request; whoever makes a problem document changes its slug."""
