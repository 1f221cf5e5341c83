"""Tracing: its configuration by OpenTelemetry's variables, and the spans of requests."""

import os
from collections.abc import Sequence
from contextlib import suppress

import pytest
from opentelemetry import propagate
from opentelemetry.instrumentation._semconv import _OpenTelemetrySemanticConventionStability
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from utils.observability import traces
from utils.observability.context import TRACE_ID
from utils.observability.routes import EMBEDDING
from utils.observability.traces import (
    NoParents,
    TracingMiddleware,
    collector_url,
    trace_requests,
    triton_flags,
)
from utils.settings import SettingsError

BASE = "http://collector:4318"
URL = "http://collector:4318/v1/traces"
ENDPOINT, TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
PROTOCOL, TRACES_PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
EXPORTER = "OTEL_TRACES_EXPORTER"
INVALID_URL = f"{ENDPOINT}: expected a URL such as {BASE}, got "


@pytest.fixture(autouse=True)
def no_variables(monkeypatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("environ", "url"),
    [
        pytest.param(
            {"OTEL_SERVICE_NAME": "mine", "OTEL_TRACES_SAMPLER": "always_on"},
            None,
            id="no collector",
        ),
        pytest.param({ENDPOINT: BASE}, URL, id="common endpoint"),
        pytest.param({ENDPOINT: BASE + "/"}, URL, id="trailing slash"),
        pytest.param({TRACES_ENDPOINT: "https://c/x"}, "https://c/x", id="traces endpoint"),
        pytest.param(
            {TRACES_ENDPOINT: "http://c/x", ENDPOINT: BASE}, "http://c/x", id="traces endpoint wins"
        ),
        pytest.param({ENDPOINT: ""}, None, id="empty endpoint"),
        pytest.param({ENDPOINT: BASE, "OTEL_SDK_DISABLED": "TRUE"}, None, id="SDK disabled"),
        pytest.param({ENDPOINT: BASE, EXPORTER: "none"}, None, id="exporter none"),
        pytest.param(
            {ENDPOINT: BASE, PROTOCOL: "grpc", TRACES_PROTOCOL: "http/protobuf"},
            URL,
            id="gRPC for other signals",
        ),
    ],
)
def test_collector_url_follows_the_variables(environ, url):
    assert collector_url(environ) == url


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        pytest.param(
            {ENDPOINT: BASE, PROTOCOL: "grpc"},
            f"{PROTOCOL}: expected http/protobuf, got 'grpc'",
            id="gRPC",
        ),
        pytest.param(
            {ENDPOINT: BASE, EXPORTER: "zipkin"},
            f"{EXPORTER}: expected otlp or none, got 'zipkin'",
            id="zipkin",
        ),
        pytest.param(
            {TRACES_ENDPOINT: "http://"}, f"{TRACES_ENDPOINT}: expected a URL", id="no host"
        ),
        *(
            pytest.param({ENDPOINT: url}, f"{INVALID_URL}{url!r}", id=url)
            for url in ("collector:4318", "http://127.0.0.1:99999", "http://host:0")
        ),
    ],
)
def test_unsupported_variables_are_errors(environ, message):
    with pytest.raises(SettingsError) as caught:
        collector_url(environ)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        pytest.param({}, "mobile_sam-triton", id="default name"),
        pytest.param(
            {"OTEL_RESOURCE_ATTRIBUTES": "service.name=masks,a=b"},
            "masks-triton",
            id="resource attribute",
        ),
    ],
)
def test_triton_flags_send_traces_to_the_collector(monkeypatch, variables, name):
    assert triton_flags() == ["--trace-config=level=off"]
    trace_requests(None, ())  # would fail: None takes no middleware
    for variable, value in {ENDPOINT: BASE, **variables}.items():
        monkeypatch.setenv(variable, value)
    assert triton_flags() == [
        "--trace-config=mode=opentelemetry",
        f"--trace-config=opentelemetry,url={URL}",
        f"--trace-config=opentelemetry,resource=service.name={name}",
        "--trace-config=level=TIMESTAMPS",
        "--trace-config=rate=0",
    ]


class Recorder:
    """Tracer with an in-memory exporter."""

    def __init__(self, sampler: Sampler = ALWAYS_ON) -> None:
        self._exporter = InMemorySpanExporter()
        self.queries: list[bytes | None] = []
        self.provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")

    @property
    def finished(self) -> Sequence[ReadableSpan]:
        """Finished spans in the order of their ends."""
        return self._exporter.get_finished_spans()

    async def request(self, scope: Scope) -> list[str]:
        """Send a connection event through the middleware; return the trace ids that the
        application sees.
        """
        seen: list[str] = []

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            seen.append(TRACE_ID.get())
            self.queries.append(scope.get("query_string"))
            if scope["type"] == "http":
                await PlainTextResponse("done")(scope, receive, send)

        async def receive() -> Message:
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            pass

        full_scope = {
            "method": "POST",
            "headers": [],
            "query_string": b"",
            "http_version": "1.1",
            **scope,
        }
        middleware = TracingMiddleware(
            app, paths=frozenset({"/work", EMBEDDING}), provider=self.provider
        )
        await middleware(full_scope, receive, send)
        return seen


@pytest.fixture
def recorder(monkeypatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(traces, "_tracer", recorder.tracer)
    return recorder


@pytest.mark.parametrize(
    ("scope", "sampler", "names"),
    [
        pytest.param({"type": "http", "path": "/work"}, ALWAYS_ON, ["POST /work"], id="work"),
        pytest.param({"type": "http", "path": "/work"}, ALWAYS_OFF, [], id="not recorded"),
        pytest.param(
            {"type": "http", "path": "/embeddings/an-id", "method": "GET"},
            ALWAYS_ON,
            ["GET /embeddings/{image_id}"],
            id="embedding",
        ),
        pytest.param({"type": "http", "path": "/readyz"}, ALWAYS_ON, [], id="other-path"),
        pytest.param({"type": "lifespan"}, ALWAYS_ON, [], id="lifespan"),
    ],
)
async def test_requests_to_traced_paths_have_a_span_and_a_trace_id(scope, sampler, names):
    TRACE_ID.set("of the request before")
    recorder = Recorder(sampler)
    seen = await recorder.request(scope)
    assert [span.name for span in recorder.finished] == names
    assert [(span.attributes or {})["http.route"] for span in recorder.finished] == [
        name.split()[1] for name in names
    ]
    assert seen == ([f"{span.context.trace_id:032x}" for span in recorder.finished] or [""])


@pytest.mark.parametrize("conventions", ["default", "http/dup"])
async def test_query_reaches_the_application_but_no_span(recorder, monkeypatch, conventions):
    monkeypatch.setattr(_OpenTelemetrySemanticConventionStability, "_initialized", False)
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", conventions)
    await recorder.request(
        {"type": "http", "path": "/work", "server": ("a", 80), "query_string": b"api_key=secret"}
    )
    (span,) = recorder.finished
    assert ("url.path" in span.attributes) == (conventions == "http/dup")
    assert not any("secret" in str(value) for value in span.attributes.values())
    assert recorder.queries == [b"api_key=secret"]


async def test_callers_trace_is_ignored_without_propagators(recorder, monkeypatch):
    monkeypatch.setattr(propagate, "_HTTP_TEXT_FORMAT", NoParents())
    caller = (b"traceparent", f"00-{0xAA:032x}-{0xCC:016x}-01".encode())
    await recorder.request({"type": "http", "path": "/work", "headers": [caller]})
    (span,) = recorder.finished
    assert span.parent is None


async def test_failed_call_of_triton_has_a_recorded_span_with_an_error_below_the_request(recorder):
    request_span = recorder.tracer.start_as_current_span("request")
    with request_span, suppress(OSError), traces.infer_span("a model") as headers:
        raise OSError("away")
    infer, request = recorder.finished
    assert infer.parent.span_id == request.context.span_id
    assert infer.attributes == {traces.MODEL: "a model"}
    assert not infer.status.is_ok
    (traceparent,) = headers.values()
    assert traceparent.startswith(
        f"00-{request.context.trace_id:032x}-{infer.context.span_id:016x}-"
    )
    assert int(traceparent.rpartition("-")[2], 16) & 1  # recorded
