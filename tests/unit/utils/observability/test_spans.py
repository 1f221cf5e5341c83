"""Spans and attributes in traces."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan, Tracer, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler

from utils.observability import spans


class Recorder:
    """Tracer with an in-memory exporter."""

    def __init__(self, sampler: Sampler) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = provider.get_tracer("test")  # type: ignore[assignment]

    @property
    def finished(self) -> Sequence[ReadableSpan]:
        """Finished spans in the order of their ends."""
        return self._exporter.get_finished_spans()

    @property
    def recorded(self) -> list[tuple[str, str | None, dict]]:
        """Name, parent name and attributes of each span."""
        names = {span.context.span_id: span.name for span in self.finished}
        return [
            (span.name, names.get(span.parent.span_id) if span.parent else None, dict(span.attributes or {}))
            for span in self.finished
        ]


@pytest.fixture(params=[ALWAYS_ON], ids=["recorded"])
def recorder(request, monkeypatch) -> Recorder:
    recorder = Recorder(request.param)
    monkeypatch.setattr(spans, "_tracer", recorder.tracer)
    return recorder


not_recorded = pytest.mark.parametrize("recorder", [ALWAYS_OFF], ids=["not recorded"], indirect=True)


async def call_model(model: str) -> dict[str, str]:
    """Open the spans of a model call, like the segmenter."""
    with spans.wait_span(model):
        await asyncio.sleep(0)
    with spans.infer_span(model) as headers:
        await asyncio.sleep(0)
    return dict(headers)


def test_wait_and_infer_spans_are_children_of_the_request(recorder):
    with recorder.tracer.start_as_current_span("request"):
        spans.set_attribute(spans.REASON, "ok")
        asyncio.run(call_model("a model"))
    named = {spans.MODEL: "a model"}
    assert recorder.recorded == [
        ("wait a model", "request", named),
        ("infer a model", "request", named),
        ("request", None, {spans.REASON: "ok"}),
    ]


def test_infer_span_yields_its_trace_context(recorder):
    with recorder.tracer.start_as_current_span("request"), spans.infer_span("a model") as headers:
        pass
    call, request = recorder.finished
    assert request.name == "request"
    (traceparent,) = headers.values()
    assert traceparent.startswith(f"00-{request.context.trace_id:032x}-{call.context.span_id:016x}-")
    assert int(traceparent.rpartition("-")[2], 16) & 1  # recorded


def test_trace_id_is_set_while_recording(recorder):
    assert spans.trace_id() == ""
    with recorder.tracer.start_as_current_span("request") as request:
        assert int(spans.trace_id(), 16) == request.get_span_context().trace_id
        assert len(spans.trace_id()) == 32


@not_recorded
def test_unrecorded_requests_have_no_spans_or_headers(recorder):
    with recorder.tracer.start_as_current_span("request"):
        spans.set_attribute(spans.REASON, "ok")
        assert spans.trace_id() == ""
        assert asyncio.run(call_model("a model")) == {}
    assert recorder.recorded == []


def test_spans_never_start_a_trace(recorder):
    spans.set_attribute(spans.REASON, "ok")
    assert asyncio.run(call_model("a model")) == {}
    assert recorder.recorded == []


def test_a_failed_call_is_recorded_as_failed(recorder):
    def fail() -> None:
        with spans.infer_span("a model"):
            raise OSError("away")

    with recorder.tracer.start_as_current_span("request"), pytest.raises(OSError, match="away"):
        fail()
    assert [span.status.is_ok for span in recorder.finished] == [False, True]
