"""What a request says of itself: its id, and the id of its image."""

import re
import uuid
from collections.abc import Iterable

from opentelemetry import trace
from starlette.types import ASGIApp, Receive, Scope, Send

from utils.api.answers import REFUSAL_LOG
from utils.edge.bodies import Body
from utils.edge.connections import address
from utils.edge.paths import Paths
from utils.edge.request import KEY, EdgeRequest
from utils.errors import invalid_image_id
from utils.inference.shares import Turns
from utils.observability.context import (
    ADDRESS,
    IMAGE_ID,
    REASON,
    RECORD,
    REQUEST_ID,
    TARGET,
    AnswerReason,
    RequestRecord,
)
from utils.observability.logs import ERROR_LOG, shown
from utils.observability.metrics import OTHER_PATH
from utils.observability.routes import route_of

REQUEST_ID_HEADER = b"x-request-id"
VALID_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
"""Ids that are safe in a log line and in a header."""
IMAGE_ID_HEADER = b"x-image-id"
VALID_IMAGE_ID = re.compile(rb"[0-9a-f]{64}")
MAX_METHOD_CHARS = 20
"""Characters of a method that logs show."""


class RequestContextMiddleware:
    """Sets the context variables of a request, and what the steps of the edge share of it."""

    def __init__(self, app: ASGIApp, paths: Paths, large_bodies: Turns) -> None:
        """Store the known paths, and the turns in which large bodies are read."""
        self.app, self._paths, self._large_bodies = app, paths, large_bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Begin the request, and free its body at the end."""
        if scope["path"].startswith(("http://", "https://")):
            # The absolute form (RFC 9112, 3.2.2), which clients send to proxies.
            scope = {**scope, "path": "/" + "".join(scope["path"].split("/", 3)[3:])}
        route = route_of(scope)
        REQUEST_ID.set(request_id(scope["headers"]))
        ADDRESS.set(shown(address(scope)))
        self._begin_record(scope["method"], route)
        REFUSAL_LOG.summarise_ended()
        ERROR_LOG.summarise_ended()
        trace.get_current_span().set_attribute("mobile_sam.request_id", REQUEST_ID.get())
        body = Body(scope, receive, self._large_bodies, ADDRESS.get())
        scope[KEY] = EdgeRequest(route, body)
        try:
            await self.app(scope, receive, send)
        finally:
            body.release()

    def _begin_record(self, method: str, route: str) -> None:
        path = route if self._paths.is_printable(route) else OTHER_PATH
        record = RequestRecord(shown(method, MAX_METHOD_CHARS), path)
        RECORD.set(record)
        TARGET.set(f"{record.method} {record.path}")
        REASON.set(AnswerReason())


class ImageIdMiddleware:
    """Reads the header `X-Image-Id`, by which proxies route."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, unless the header is invalid."""
        IMAGE_ID.set(image_id(scope["headers"]))
        await self.app(scope, receive, send)


def request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the caller's own request id if it is valid, else a new one."""
    for name, value in headers:
        if name == REQUEST_ID_HEADER and VALID_REQUEST_ID.fullmatch(value):
            return value.decode()
    return uuid.uuid4().hex


def image_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the id in the header `X-Image-Id`; empty without the header.

    Raises:
        InvalidRequest: the header is not one SHA-256, or is repeated: a proxy may have routed by
            another value.
    """
    values = [value for name, value in headers if name == IMAGE_ID_HEADER]
    if not values:
        return ""
    if len(values) > 1 or not VALID_IMAGE_ID.fullmatch(values[0]):
        raise invalid_image_id(b", ".join(values).decode("latin-1"))
    return values[0].decode()
