"""Spans of requests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from opentelemetry import propagate
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from utils.observability.tracing import NoParents, TracingMiddleware, trace_requests


def test_service_without_a_collector_is_unchanged(monkeypatch):
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    trace_requests(None, frozenset({"/work"}))  # would fail: None takes no middleware


@pytest.mark.parametrize(
    ("scope", "names"),
    [
        pytest.param({"type": "http", "path": "/work"}, ["POST /work"], id="work"),
        pytest.param({"type": "http", "path": "/readyz"}, [], id="other-path"),
        pytest.param({"type": "lifespan"}, [], id="lifespan"),
    ],
)
def test_requests_to_traced_paths_have_a_span(scope, names):
    spans = spans_of(scope)
    assert [span.name for span in spans] == names
    assert [(span.attributes or {})["http.route"] for span in spans] == [scope["path"] for _ in names]


@pytest.mark.parametrize(
    ("propagator", "parent"),
    [
        pytest.param(propagate.get_global_textmap(), 0xCC, id="default"),
        pytest.param(NoParents(), None, id="no-parents"),
    ],
)
def test_callers_trace_is_continued_by_default(monkeypatch, propagator, parent):
    monkeypatch.setattr(propagate, "_HTTP_TEXT_FORMAT", propagator)
    caller = (b"traceparent", f"00-{0xAA:032x}-{0xCC:016x}-01".encode())
    (span,) = spans_of({"type": "http", "path": "/work", "headers": [caller]})
    assert (span.parent and span.parent.span_id) == parent


def spans_of(scope: Scope) -> Sequence[ReadableSpan]:
    """Return the spans of a connection event that reaches the application."""
    exporter, events = InMemorySpanExporter(), []
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        events.append(scope["type"])
        if scope["type"] == "http":
            await PlainTextResponse("done")(scope, receive, send)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        events.append(message["type"])

    full_scope = {"method": "POST", "headers": [], "query_string": b"", "http_version": "1.1", **scope}
    asyncio.run(TracingMiddleware(app, paths=frozenset({"/work"}), provider=provider)(full_scope, receive, send))
    assert events[0] == scope["type"]
    return exporter.get_finished_spans()
