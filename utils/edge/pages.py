"""Pages about the state of one API worker: liveness, readiness and metrics."""

from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from utils.api.answers import problem_response
from utils.edge.admission import Admission
from utils.errors import InferenceFailed, InferenceUnavailable, Stopping
from utils.observability.reading import Reading
from utils.triton.health import Health
from utils.triton.metrics import health_metrics

LIVE, READY, METRICS = ("/livez", "/healthz"), ("/readyz", "/health"), "/metrics"


class ReadinessPage:
    """ASGI application that answers whether the service is ready.

    Its refusals are not logged: probes come every second or so.
    """

    def __init__(self, admission: Admission, health: Callable[[], Health]) -> None:
        self._admission, self._health = admission, health

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send 200, or a problem while the service is not ready."""
        await self._response()(scope, receive, send)

    def _response(self) -> Response:
        health = self._health()
        if self._admission.stopping or health.stopping:
            return problem_response(Stopping().problem())
        if not health.ready:
            error = InferenceUnavailable(f"{health.state}: {health.reason}")
            return problem_response(error.problem())
        return PlainTextResponse("ready\n")


class MetricsPage:
    """ASGI application that answers the metrics of all parts of the service.

    Callers share what was read in the last second: reading takes milliseconds of processor time.
    """

    def __init__(
        self,
        bento_app: ASGIApp,
        health: Callable[[], Health],
        sources: Sequence[Callable[[], Awaitable[bytes]]],
    ) -> None:
        """Store what is read.

        Args:
            bento_app: BentoML's application, which answers its own metrics and the edge's.
            health: returns the health of Triton.
            sources: functions that return further metrics, in the Prometheus text format.
        """
        self._bento_app, self._health, self._sources = bento_app, health, sources
        self._shared = Reading(self._read)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the metrics."""
        content, media_type = await self._shared(scope)
        await Response(content, media_type=media_type)(scope, receive, send)

    async def _read(self, scope: Scope) -> tuple[bytes, str]:
        """Return the metrics and their media type.

        Raises:
            InferenceFailed: BentoML did not answer with its metrics.
        """
        content, media_type = await self._read_bento(scope)
        content += health_metrics(self._health())
        for source in self._sources:
            content += await source()
        return content, media_type

    async def _read_bento(self, scope: Scope) -> tuple[bytes, str]:
        head: Message = {}
        content = b""

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            nonlocal head, content
            if message["type"] == "http.response.start":
                head = message
            content += message.get("body", b"")

        await self._bento_app({**scope, "method": "GET", "headers": []}, receive, send)
        if head["status"] != HTTPStatus.OK:
            raise InferenceFailed("the metrics could not be read; see the server's log")
        return content, Headers(raw=list(head["headers"]))["content-type"]
