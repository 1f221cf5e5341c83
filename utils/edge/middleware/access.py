"""Who may call: own pages and programs, with a key, and not too often."""

from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from utils.edge.connections import address
from utils.edge.keys import ApiKeys
from utils.edge.origins import Origins
from utils.edge.paths import READ, Paths
from utils.edge.rate import RateLimit
from utils.edge.request import request_of
from utils.observability.context import KEY_NAME


class OriginMiddleware:
    """Refuses work and changes for foreign web pages."""

    def __init__(self, app: ASGIApp, origins: Origins, paths: Paths) -> None:
        self.app, self._origins, self._paths = app, origins, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, unless another origin's page may have sent it."""
        if scope["method"] not in READ or request_of(scope).route in self._paths.work:
            self._origins.check(scope["headers"])
        await self.app(scope, receive, send)


class ApiKeyMiddleware:
    """Names the caller by its API key, on paths that need one."""

    def __init__(self, app: ASGIApp, keys: ApiKeys | None, paths: Paths) -> None:
        """Store the keys; None: nobody needs one."""
        self.app, self._keys, self._paths = app, keys, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, unless its key is missing or unknown."""
        if request_of(scope).route in self._paths.need_key:
            KEY_NAME.set(self._name_of(scope["headers"]))
        await self.app(scope, receive, send)

    def _name_of(self, headers: Iterable[tuple[bytes, bytes]]) -> str:
        return "" if self._keys is None else self._keys.name_of(headers)


class RateLimitMiddleware:
    """Limits the requests of each key, or without keys of each address."""

    def __init__(self, app: ASGIApp, rate: RateLimit | None) -> None:
        """Store the limits; None: there are none."""
        self.app, self._rate = app, rate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count the request and pass it on, unless its caller is above its rate."""
        if self._rate is not None:
            await self._rate.check(KEY_NAME.get(), address(scope))
        await self.app(scope, receive, send)
