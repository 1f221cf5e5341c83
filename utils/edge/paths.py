"""The paths of the service: their methods, and which steps of the edge concern them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from utils.edge.request import request_of
from utils.observability.metrics import OTHER_PATH

READ, WRITE = ("GET", "HEAD"), ("POST",)
STATIC = "/static_content"
"""Label of all static files in the metrics."""


@dataclass(frozen=True)
class Paths:
    """The known paths. Those that end with an id are one path, see `route_of`."""

    methods: Mapping[str, tuple[str, ...]]
    """Methods of every known path."""
    work: Collection[str]
    """Paths that run inference."""
    files: Collection[str]
    """Static files."""
    need_key: Collection[str]
    """Paths that need an API key, those of `work` among them."""
    off: Mapping[str, str]
    """Paths of annotation tools that are off, with the tools' names."""

    def is_printable(self, route: str) -> bool:
        """Return whether logs may show the path; unknown ones may contain a key."""
        return route in self.methods or route in self.off

    def label(self, route: str) -> str:
        """Return the path in the metrics, one of a bounded number."""
        if route in self.files:
            return STATIC
        if route in self.methods:
            return route
        return OTHER_PATH


class PathRouter:
    """ASGI application that passes each request to the application of its path."""

    def __init__(self, by_path: Mapping[str, ASGIApp], others: ASGIApp) -> None:
        """Store the applications by path, and the one for all other paths."""
        self._by_path, self._others = by_path, others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        app = self._by_path.get(request_of(scope).route, self._others)
        await app(scope, receive, send)
