"""A span for each request that costs work, and the sending of all spans of an API worker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Mapping
from typing import Any

from bentoml._internal.configuration.containers import BentoMLContainer
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.http import ExcludeList
from starlette.types import ASGIApp, Receive, Scope, Send

from utils import traces

LAST_SECONDS = 3.0
"""For what is left to be sent when a worker ends."""


class NoParents(TraceContextTextMapPropagator):
    """Finds no trace in a request. What OpenTelemetry has for that finds no context either, of which requests fail."""

    def extract(self, *_: Any, **__: Any) -> Context:
        """A context without a trace."""
        return Context()


def trace_requests(svc: Any, paths: Collection[str]) -> None:
    """Have requests to a service be traced, if there is a collector; call it before other middleware is added.

    Args:
        svc: a `bentoml.legacy.Service`.
        paths: of the requests.

    Raises:
        TracesError: as `traces.collector`.
    """
    url = traces.collector_url()
    if url is None:
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415  (takes a while)

    # The sampler is the SDK's business: it reads OTEL_TRACES_SAMPLER.
    provider = TracerProvider(resource=traces.resource(), shutdown_on_exit=False)
    trace.set_tracer_provider(provider)
    if not propagate.get_global_textmap().fields:  # OTEL_PROPAGATORS=none
        propagate.set_global_textmap(NoParents())
    # BentoML's own spans begin behind the edge, are never sent, and would stand between those that are.
    BentoMLContainer.tracing_excluded_urls.set(ExcludeList([".*"]))
    svc.add_asgi_middleware(Traced, paths=frozenset(paths), provider=provider)

    @svc.on_startup  # type: ignore[untyped-decorator]
    def begin(_: Any) -> None:
        # Here, for it starts a thread: the process that starts the workers needs none.
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url)))

    @svc.on_shutdown  # type: ignore[untyped-decorator]
    async def end(_: Any) -> None:
        sends = threading.Thread(target=provider.shutdown, daemon=True)  # which a collector that is away may hold up
        sends.start()
        await asyncio.to_thread(sends.join, LAST_SECONDS)


class Traced:
    """ASGI middleware: a span for each request to some paths."""

    def __init__(self, app: ASGIApp, *, paths: frozenset[str], provider: TracerProvider) -> None:
        """Wrap an application.

        Args:
            app: the application.
            paths: others are not traced.
            provider: makes the spans.
        """
        self._app, self._paths = app, paths
        self._traced = OpenTelemetryMiddleware(
            app, server_request_hook=_name_route, tracer_provider=provider, exclude_spans=["receive", "send"]
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection event of ASGI."""
        app = self._traced if scope["type"] == "http" and scope["path"] in self._paths else self._app
        await app(scope, receive, send)


def _name_route(span: Span, scope: Mapping[str, Any]) -> None:
    span.set_attribute("http.route", scope["path"])
