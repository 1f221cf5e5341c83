"""What the service writes into the trace of a request; where no trace is recorded, this does nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

from opentelemetry import trace
from opentelemetry.trace import SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

MODEL, REQUEST_ID, REASON = "triton.model_name", "mobile_sam.request_id", "mobile_sam.reason"
"""Attributes; the first is Triton's own word."""

_tracer = trace.get_tracer("mobile_sam")
_headers = TraceContextTextMapPropagator()


def trace_id() -> str:
    """Of the trace that is being recorded, 32 hexadecimal digits; empty where none is."""
    context = trace.get_current_span().get_span_context()
    return f"{context.trace_id:032x}" if context.trace_flags.sampled else ""


def note(name: str, value: str) -> None:
    """Give the current span an attribute."""
    trace.get_current_span().set_attribute(name, value)


def waiting(model: str) -> AbstractContextManager[object]:
    """A span for the wait until a model may be asked."""
    return _span("wait", model, SpanKind.INTERNAL)


@contextmanager
def asking(model: str) -> Iterator[Mapping[str, str]]:
    """A span for a call of Triton; gives the headers by which Triton's own spans come below it.

    There are none for a trace that is not recorded: Triton records whatever it is given.
    """
    headers: dict[str, str] = {}
    with _span("infer", model, SpanKind.CLIENT):
        if trace_id():
            _headers.inject(headers)
        yield headers


def _span(what: str, model: str, kind: SpanKind) -> AbstractContextManager[object]:
    if not trace_id():
        return nullcontext()
    return _tracer.start_as_current_span(f"{what} {model}", kind=kind, attributes={MODEL: model})
