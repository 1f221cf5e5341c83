"""The span of a request."""

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

from utils.edge.tracing import NoParents, Traced, trace_requests


def test_without_a_collector_the_service_stays_as_it_is(monkeypatch):
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    trace_requests(None, frozenset({"/work"}))  # which has nothing that middleware could be added to


@pytest.mark.parametrize(
    ("scope", "names"),
    [
        pytest.param({"type": "http", "path": "/work"}, ["POST /work"], id="work"),
        pytest.param({"type": "http", "path": "/readyz"}, [], id="another path"),
        pytest.param({"type": "lifespan"}, [], id="no request"),
    ],
)
def test_requests_to_some_paths_have_a_span(scope, names):
    spans = spans_of(scope)
    assert [span.name for span in spans] == names
    assert [(span.attributes or {})["http.route"] for span in spans] == [scope["path"] for _ in names]


@pytest.mark.parametrize(
    ("propagator", "parent"),
    [
        pytest.param(propagate.get_global_textmap(), 0xCC, id="by default"),
        pytest.param(NoParents(), None, id="not where none are wanted"),
    ],
)
def test_a_callers_trace_is_continued(monkeypatch, propagator, parent):
    monkeypatch.setattr(propagate, "_HTTP_TEXT_FORMAT", propagator)
    caller = (b"traceparent", f"00-{0xAA:032x}-{0xCC:016x}-01".encode())
    (span,) = spans_of({"type": "http", "path": "/work", "headers": [caller]})
    assert (span.parent and span.parent.span_id) == parent


def spans_of(scope: Scope) -> Sequence[ReadableSpan]:
    """What is recorded of a connection event, which an application has to see."""
    exporter, came = InMemorySpanExporter(), []
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        came.append(scope["type"])
        if scope["type"] == "http":
            await PlainTextResponse("done")(scope, receive, send)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        came.append(message["type"])

    asked = {"method": "POST", "headers": [], "query_string": b"", "http_version": "1.1", **scope}
    asyncio.run(Traced(app, paths=frozenset({"/work"}), provider=provider)(asked, receive, send))
    assert came[0] == scope["type"]
    return exporter.get_finished_spans()
