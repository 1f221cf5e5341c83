"""A trace collector for tests: accepts OTLP over HTTP, as protobuf from Python and as JSON from
Triton.
"""

import gzip
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TRACE_TIMEOUT_S = 120


@dataclass(frozen=True)
class Span:
    """One span as received."""

    trace_id: str
    span_id: str
    parent_id: str
    """Span id of the parent; empty for a root span."""
    name: str
    service: str
    attributes: dict[str, Any]
    start_ns: int
    end_ns: int


class Collector:
    """Received spans and the URL that accepts them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.spans: list[Span] = []

    def trace(self, trace_id: str, names: set[str]) -> list[Span]:
        """Wait until a trace has spans of these names and all parents but the root's; return its
        spans.
        """
        deadline = time.monotonic() + TRACE_TIMEOUT_S
        while True:
            spans = [span for span in self.spans if span.trace_id == trace_id]
            ids = {span.span_id for span in spans}
            if (
                names <= {span.name for span in spans}
                and sum(span.parent_id not in ids for span in spans) == 1
            ):
                return spans
            assert time.monotonic() < deadline, spans
            time.sleep(0.02)


@contextmanager
def running_collector() -> Iterator[Collector]:
    """Run a collector on a free port of 127.0.0.1."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers["Content-Encoding"] == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/v1/traces", self.path
            as_json = self.headers["Content-Type"].startswith("application/json")
            collector.spans += spans_of(json.loads(body) if as_json else from_protobuf(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    collector = Collector(f"http://127.0.0.1:{server.server_port}")
    yield collector
    server.shutdown()
    server.server_close()


def from_protobuf(body: bytes) -> dict[str, Any]:
    """Return a protobuf export request as the equivalent OTLP JSON document."""
    from google.protobuf.json_format import MessageToDict
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    message = ExportTraceServiceRequest.FromString(body)
    document = MessageToDict(message)
    for resource, sent in zip(document["resourceSpans"], message.resource_spans, strict=True):
        for scope, sent_scope in zip(resource["scopeSpans"], sent.scope_spans, strict=True):
            for span, sent_span in zip(scope["spans"], sent_scope.spans, strict=True):
                # Ids are hexadecimal in OTLP JSON but base64 in protobuf's JSON mapping.
                span["traceId"], span["spanId"] = sent_span.trace_id.hex(), sent_span.span_id.hex()
                span["parentSpanId"] = sent_span.parent_span_id.hex()
    return dict(document)


def spans_of(document: dict[str, Any]) -> list[Span]:
    return [
        Span(
            span["traceId"],
            span["spanId"],
            span.get("parentSpanId", ""),
            span["name"],
            attributes_of(resource["resource"])["service.name"],
            attributes_of(span),
            int(span["startTimeUnixNano"]),
            int(span["endTimeUnixNano"]),
        )
        for resource in document["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def attributes_of(holder: dict[str, Any]) -> dict[str, Any]:
    return {
        entry["key"]: next(iter(entry["value"].values())) for entry in holder.get("attributes", [])
    }
