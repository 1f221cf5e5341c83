"""What the steps of the edge share of one request; it travels in the ASGI scope."""

from dataclasses import dataclass, field

from starlette.types import Scope

from utils.edge.bodies import Body
from utils.inference.ending import Ending

KEY = "mobile_sam.edge"
"""Entry of the scope."""


@dataclass(eq=False)
class EdgeRequest:
    """One request on its way through the edge.

    Who calls, its request id and what logs and metrics say of it are context variables, because
    other rooms read them too: see `utils.observability.context`.
    """

    route: str
    """Its path, or the one that stands for all that differ by an id: see `route_of`."""
    body: Body
    content: bytes = b""
    """The body once it is read, until the work takes it."""
    ending: Ending = field(init=False)
    """Ends the work early; set by `EarlyEndMiddleware`."""

    def take_content(self) -> bytes:
        """Return the body, and keep it no longer: the application frees it once it is parsed."""
        content, self.content = self.content, b""
        return content


def request_of(scope: Scope) -> EdgeRequest:
    """Return the request of a scope that has passed `RequestContextMiddleware`."""
    request: EdgeRequest = scope[KEY]
    return request
