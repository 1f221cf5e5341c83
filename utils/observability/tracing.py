"""Tracing: a span for each inference request, and the export of an API worker's spans."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Mapping
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Receive, Scope, Send

from utils.bento import disable_tracing
from utils.observability import traces

SHUTDOWN_TIMEOUT_S = 3.0
"""Time to send the remaining spans when a worker ends."""


class NoParents(TraceContextTextMapPropagator):
    """Propagator that ignores the caller's trace. OpenTelemetry's own returns no context at all, and requests fail."""

    def extract(self, *_: Any, **__: Any) -> Context:
        """Return a context without a trace."""
        return Context()


def trace_requests(svc: Any, paths: Collection[str]) -> None:
    """Trace a service's requests if there is a collector; call this before adding other middleware.

    Args:
        svc: a `bentoml.legacy.Service`.
        paths: paths to trace.

    Raises:
        TracesError: as `traces.collector`.
    """
    disable_tracing()
    url = traces.collector_url()
    if url is None:
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415  (takes a while)

    # The SDK chooses the sampler: it reads OTEL_TRACES_SAMPLER.
    provider = TracerProvider(resource=traces.resource(), shutdown_on_exit=False)
    trace.set_tracer_provider(provider)
    if not propagate.get_global_textmap().fields:  # OTEL_PROPAGATORS=none
        propagate.set_global_textmap(NoParents())
    svc.add_asgi_middleware(TracingMiddleware, paths=frozenset(paths), provider=provider)

    @svc.on_startup  # type: ignore[untyped-decorator]
    def start(_: Any) -> None:
        # The processor starts a thread, which only the workers need.
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=url)))

    @svc.on_shutdown  # type: ignore[untyped-decorator]
    async def stop(_: Any) -> None:
        shutdown = threading.Thread(target=provider.shutdown, daemon=True)  # blocks if the collector does not answer
        shutdown.start()
        await asyncio.to_thread(shutdown.join, SHUTDOWN_TIMEOUT_S)


class TracingMiddleware:
    """ASGI middleware that opens a span for each request to some paths."""

    def __init__(self, app: ASGIApp, *, paths: frozenset[str], provider: TracerProvider) -> None:
        """Wrap an application.

        Args:
            app: the application.
            paths: paths to trace.
            provider: source of the spans.
        """
        self._app, self._paths = app, paths
        self._traced = OpenTelemetryMiddleware(
            app, server_request_hook=_name_route, tracer_provider=provider, exclude_spans=["receive", "send"]
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection event."""
        app = self._traced if scope["type"] == "http" and scope["path"] in self._paths else self._app
        await app(scope, receive, send)


def _name_route(span: Span, scope: Mapping[str, Any]) -> None:
    span.set_attribute("http.route", scope["path"])
