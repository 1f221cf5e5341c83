"""Tracing: its configuration by OpenTelemetry's standard variables, and the spans of each inference
request.

Without a collector nothing is traced. A trace contains the request at the edge, the waits for a
slot in Triton and the calls of its models. Triton sends child spans of each call to the same
collector: the called models with their queueing and execution times.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from urllib.parse import urlsplit

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Receive, Scope, Send

from utils.observability.context import TRACE_ID
from utils.observability.routes import route_of
from utils.settings import SettingsError

ENDPOINT, TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
PROTOCOL, TRACES_PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
EXPORTER, DISABLED = "OTEL_TRACES_EXPORTER", "OTEL_SDK_DISABLED"
HTTP = "http/protobuf"
SERVICE = "mobile_sam"
"""Default of `OTEL_SERVICE_NAME`."""
SHUTDOWN_TIMEOUT_S = 3.0
"""Time to send the remaining spans when a worker ends."""

QUERY = "mobile_sam.query"
"""Scope entry with the query: some tools send their key in it, and spans would have it as
attribute."""
MODEL = "triton.model_name"
"""Name of a span attribute, Triton's own."""

_tracer = trace.get_tracer("mobile_sam")
_headers = TraceContextTextMapPropagator()


def collector_url(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the URL for spans as OTLP over HTTP, or None if tracing is off.

    Raises:
        SettingsError: a variable has an unsupported value.
    """
    exporter = environ.get(EXPORTER) or "otlp"
    if exporter == "none" or environ.get(DISABLED, "").lower() == "true":
        return None
    name, url = TRACES_ENDPOINT, environ.get(TRACES_ENDPOINT)
    if not url and environ.get(ENDPOINT):
        name, url = ENDPOINT, environ[ENDPOINT].rstrip("/") + "/v1/traces"
    if not url:
        return None
    if exporter != "otlp":
        raise SettingsError(f"{EXPORTER}: expected otlp or none, got {exporter!r}")
    variable = TRACES_PROTOCOL if environ.get(TRACES_PROTOCOL) else PROTOCOL
    if (protocol := environ.get(variable) or HTTP) != HTTP:
        raise SettingsError(
            f"{variable}: expected {HTTP}, got {protocol!r}; collectors offer it on port 4318"
        )
    with contextlib.suppress(ValueError):  # of an invalid port
        parts = urlsplit(url)
        if parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0:
            return url
    raise SettingsError(
        f"{name}: expected a URL such as http://collector:4318, got {environ[name]!r}"
    )


def triton_flags() -> list[str]:
    """Return the flags of `tritonserver` that configure tracing.

    Raises:
        SettingsError: as `collector_url`.
    """
    url = collector_url()
    if url is None:
        return ["--trace-config=level=off"]
    name = str(resource().attributes["service.name"])
    return [
        "--trace-config=mode=opentelemetry",
        f"--trace-config=opentelemetry,url={url}",
        f"--trace-config=opentelemetry,resource=service.name={name}-triton",
        "--trace-config=level=TIMESTAMPS",
        # A rate of 0 still records every request that carries a trace.
        "--trace-config=rate=0",
    ]


def resource() -> Resource:
    """Return the service name and other resource attributes, from the environment."""
    return Resource.create({"service.name": SERVICE}).merge(OTELResourceDetector().detect())


class NoParents(TraceContextTextMapPropagator):
    """Propagator that ignores the caller's trace. OpenTelemetry's own returns no context at all,
    and requests fail.
    """

    def extract(self, *_: Any, **__: Any) -> Context:
        """Return a context without a trace."""
        return Context()


def trace_requests(svc: Any, paths: Collection[str]) -> None:
    """Trace requests to some paths of a `bentoml.legacy.Service` if there is a collector.

    Call this before adding other middleware.

    Raises:
        SettingsError: as `collector_url`.
    """
    url = collector_url()
    if url is None:
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415  (takes a while)

    # The SDK chooses the sampler: it reads OTEL_TRACES_SAMPLER.
    provider = TracerProvider(resource=resource(), shutdown_on_exit=False)
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
        # Blocks if the collector does not answer.
        shutdown = threading.Thread(target=provider.shutdown, daemon=True)
        shutdown.start()
        await asyncio.to_thread(shutdown.join, SHUTDOWN_TIMEOUT_S)


class TracingMiddleware:
    """ASGI middleware that opens a span for each request to some paths."""

    def __init__(self, app: ASGIApp, *, paths: frozenset[str], provider: TracerProvider) -> None:
        self._app, self._paths = app, paths
        self._traced = OpenTelemetryMiddleware(
            self._run,
            server_request_hook=_begin,
            tracer_provider=provider,
            exclude_spans=["receive", "send"],
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection event."""
        TRACE_ID.set("")  # a pipelined request starts in the context of the one before it
        if scope["type"] == "http" and route_of(scope) in self._paths:
            await self._traced(
                {**scope, "query_string": b"", QUERY: scope["query_string"]}, receive, send
            )
        else:
            await self._app(scope, receive, send)

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application with the query, which is hidden from the spans."""
        await self._app({**scope, "query_string": scope[QUERY]}, receive, send)


def _begin(span: Span, scope: Scope) -> None:
    span.set_attribute("http.route", route_of(scope))
    span.update_name(f"{scope['method']} {route_of(scope)}")
    context = span.get_span_context()
    if context.trace_flags.sampled:
        TRACE_ID.set(f"{context.trace_id:032x}")


def wait_span(model: str) -> AbstractContextManager[object]:
    """Return a span for the wait for a slot of a model; only for requests with a `TRACE_ID`."""
    return _tracer.start_as_current_span(f"wait {model}", attributes={MODEL: model})


@contextmanager
def infer_span(model: str) -> Iterator[Mapping[str, str]]:
    """Open a span for a call of Triton and yield the headers that make Triton's spans its children.

    Only for requests with a `TRACE_ID`: Triton records every trace it receives.
    """
    headers: dict[str, str] = {}
    with _tracer.start_as_current_span(
        f"infer {model}", kind=SpanKind.CLIENT, attributes={MODEL: model}
    ):
        _headers.inject(headers)
        yield headers
