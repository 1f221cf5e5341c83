"""The body of work: which ones are accepted, how they are read, and what ends the work early."""

from collections.abc import Callable, Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from utils.api.request_body import check_content_encoding
from utils.edge.admission import Admission
from utils.edge.limits import Limits
from utils.edge.request import request_of
from utils.errors import UnsupportedMedia
from utils.observability.context import caller

STOPPED_WHILE_READING = "the service is shutting down and does not wait for the rest of the body"
STOPPED_WHILE_WORKING = "the service is shutting down and could not finish this request in time"


class BodyHeadersMiddleware:
    """Refuses bodies that nothing behind the edge can read."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, unless its body is compressed or its type is not ASCII."""
        for name, value in scope["headers"]:
            if name == b"content-type" and not value.isascii():
                raise UnsupportedMedia("bytes that are not ASCII")  # BentoML fails to decode it
        check_content_encoding(scope["headers"])
        await self.app(scope, receive, send)


class EarlyEndMiddleware:
    """Lets a request be ended early: by a stop of the service, or to make room for others."""

    def __init__(self, app: ASGIApp, admission: Admission) -> None:
        self.app, self._admission = app, admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and raise the error with which it was ended."""
        with self._admission.endable(STOPPED_WHILE_READING) as ending:
            request_of(scope).ending = ending
            await self.app(scope, receive, send)


class ReadBodyMiddleware:
    """Reads the body, up to a size, within a time limit, and in the caller's share of memory."""

    def __init__(self, app: ASGIApp, admission: Admission, limits: Limits) -> None:
        """Store the limits of all bodies together, and of one."""
        self.app, self._room, self._limits = app, admission.bodies, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its body."""
        request, limits = request_of(scope), self._limits
        # It grows by the bytes that arrive, and is held until the request ends.
        holding = self._room.take(caller(), 0, request.ending.lose)
        request.content = await request.body.read(
            limits.max_body_bytes,
            limits.body_timeout_s,
            holding,
        )
        request.ending.stopping_detail = STOPPED_WHILE_WORKING
        await self.app(scope, receive, send)


class CostlyRoomMiddleware:
    """Refuses a body that would be refused later, after it was parsed."""

    def __init__(self, app: ASGIApp, checks: Mapping[str, Callable[[bytes], None]]) -> None:
        """Store functions by path that take a body; they raise `Overloaded`."""
        self.app, self._checks = app, checks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, unless there is no room for what its body asks for."""
        check_room = self._checks.get(scope["path"])
        if check_room is not None:
            check_room(request_of(scope).content)
        await self.app(scope, receive, send)
