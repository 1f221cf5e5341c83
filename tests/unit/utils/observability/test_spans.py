"""Spans and attributes in traces."""

import asyncio
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
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
        self.tracer = provider.get_tracer("test")

    @property
    def finished(self) -> Sequence[ReadableSpan]:
        """Finished spans in the order of their ends."""
        return self._exporter.get_finished_spans()


@pytest.fixture(params=[ALWAYS_ON], ids=["recorded"])
def recorder(request, monkeypatch) -> Recorder:
    recorder = Recorder(request.param)
    monkeypatch.setattr(spans, "_tracer", recorder.tracer)
    return recorder


async def call_model(model: str) -> dict[str, str]:
    """Open the spans of a model call, like the segmenter."""
    with spans.wait_span(model):
        await asyncio.sleep(0)
    with spans.infer_span(model) as headers:
        await asyncio.sleep(0)
    return dict(headers)


async def test_wait_and_infer_spans_are_children_of_the_request(recorder):
    with recorder.tracer.start_as_current_span("request"):
        spans.set_attribute(spans.REASON, "ok")
        headers = await call_model("a model")
    wait, infer, request = recorder.finished
    assert [span.name for span in recorder.finished] == ["wait a model", "infer a model", "request"]
    assert [span.parent and span.parent.span_id for span in recorder.finished] == [request.context.span_id] * 2 + [None]
    assert wait.attributes == infer.attributes == {spans.MODEL: "a model"}
    assert request.attributes == {spans.REASON: "ok"}
    (traceparent,) = headers.values()
    assert traceparent.startswith(f"00-{request.context.trace_id:032x}-{infer.context.span_id:016x}-")
    assert int(traceparent.rpartition("-")[2], 16) & 1  # recorded


def test_trace_id_is_set_while_recording(recorder):
    assert spans.trace_id() == ""
    with recorder.tracer.start_as_current_span("request") as request:
        assert spans.trace_id() == f"{request.get_span_context().trace_id:032x}"


@pytest.mark.parametrize("recorder", [ALWAYS_OFF], ids=["not recorded"], indirect=True)
async def test_unrecorded_requests_have_no_spans_or_headers(recorder):
    with recorder.tracer.start_as_current_span("request"):
        spans.set_attribute(spans.REASON, "ok")
        assert spans.trace_id() == ""
        assert await call_model("a model") == {}
    assert recorder.finished == ()


async def test_spans_never_start_a_trace(recorder):
    spans.set_attribute(spans.REASON, "ok")
    assert await call_model("a model") == {}
    assert recorder.finished == ()


def test_a_failed_call_is_recorded_as_failed(recorder):
    with (
        recorder.tracer.start_as_current_span("request"),
        pytest.raises(OSError, match="away"),
        spans.infer_span("a model"),
    ):
        raise OSError("away")
    assert [span.status.is_ok for span in recorder.finished] == [False, True]
