"""Spans and attributes in the trace of a request; without a recorded trace, all of this does nothing."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from opentelemetry import trace
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

MODEL, REQUEST_ID, REASON = "triton.model_name", "mobile_sam.request_id", "mobile_sam.reason"
"""Attribute names; the first is Triton's own."""

_tracer = trace.get_tracer("mobile_sam")
_headers = TraceContextTextMapPropagator()


def trace_id() -> str:
    """Return the id of the recorded trace, 32 hexadecimal digits, or an empty string without one."""
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.trace_flags.sampled else ""


def set_attribute(name: str, value: str) -> None:
    """Set an attribute of the current span."""
    trace.get_current_span().set_attribute(name, value)


def wait_span(model: str) -> AbstractContextManager[object]:
    """Return a span for the wait for a slot of a model."""
    return _span("wait", model, SpanKind.INTERNAL)


@contextmanager
def infer_span(model: str) -> Iterator[Mapping[str, str]]:
    """Open a span for a call of Triton and yield the headers that make Triton's spans its children.

    Without a recorded trace there are no headers, because Triton records every trace it receives.
    """
    headers: dict[str, str] = {}
    with _span("infer", model, SpanKind.CLIENT):
        if trace_id():
            _headers.inject(headers)
        yield headers


def _span(action: str, model: str, kind: SpanKind) -> AbstractContextManager[object]:
    if not trace_id():
        return nullcontext()
    return _tracer.start_as_current_span(f"{action} {model}", kind=kind, attributes={MODEL: model})
