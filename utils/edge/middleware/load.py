"""Refusals of work for which there is no room, or no Triton, before the body is read."""

from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from utils.edge.admission import Admission
from utils.errors import InferenceUnavailable, Stopping
from utils.inference.shares import RecentCallers
from utils.observability.context import ADDRESS, caller
from utils.triton.health import Health


class AdmissionMiddleware:
    """Refuses work while the worker stops, or too many requests are in progress."""

    def __init__(self, app: ASGIApp, admission: Admission, active: RecentCallers) -> None:
        """Store the requests in progress, and the addresses that send work, noted here."""
        self.app, self._admission, self._active = app, admission, active

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, unless there is no room for it."""
        self._active.note(ADDRESS.get())
        self._admission.check(caller())
        await self.app(scope, receive, send)


class HealthMiddleware:
    """Refuses work while Triton is unavailable."""

    def __init__(self, app: ASGIApp, health: Callable[[], Health]) -> None:
        self.app, self._health = app, health

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, unless nobody would answer it."""
        health = self._health()
        if health.stopping:
            raise Stopping
        if not health.accepts_requests:
            state = f"the inference server is unavailable ({health.state})"
            raise InferenceUnavailable(f"{state}; retry later")
        await self.app(scope, receive, send)
