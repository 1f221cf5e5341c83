"""Configuration of tracing by OpenTelemetry's variables."""

from __future__ import annotations

import os

import pytest

from utils.observability.traces import TracesError, collector_url, triton_flags

BASE = "http://collector:4318"
URL = "http://collector:4318/v1/traces"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("environ", "url"),
    [
        pytest.param({}, None, id="no variables"),
        pytest.param({"OTEL_SERVICE_NAME": "mine", "OTEL_TRACES_SAMPLER": "always_on"}, None, id="no collector"),
        pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": BASE}, URL, id="common endpoint"),
        pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": BASE + "/"}, URL, id="trailing slash"),
        pytest.param({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://c/x"}, "https://c/x", id="traces endpoint"),
        pytest.param(
            {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/x", "OTEL_EXPORTER_OTLP_ENDPOINT": BASE},
            "http://c/x",
            id="traces endpoint wins",
        ),
        pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, None, id="empty endpoint"),
        pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": BASE, "OTEL_SDK_DISABLED": "TRUE"}, None, id="SDK disabled"),
        pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": BASE, "OTEL_TRACES_EXPORTER": "none"}, None, id="exporter none"),
        pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": BASE, "OTEL_TRACES_EXPORTER": "otlp"}, URL, id="exporter otlp"),
        pytest.param(
            {"OTEL_EXPORTER_OTLP_ENDPOINT": BASE, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
            URL,
            id="protocol http",
        ),
        pytest.param(
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": BASE,
                "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            },
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
            {"OTEL_EXPORTER_OTLP_ENDPOINT": BASE, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL: expected http/protobuf, got 'grpc'",
            id="gRPC",
        ),
        pytest.param(
            {"OTEL_EXPORTER_OTLP_ENDPOINT": BASE, "OTEL_TRACES_EXPORTER": "zipkin"},
            "OTEL_TRACES_EXPORTER: expected otlp or none, got 'zipkin'",
            id="unsupported exporter",
        ),
        pytest.param(
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"},
            "OTEL_EXPORTER_OTLP_ENDPOINT: expected a URL such as http://collector:4318, got 'collector:4318'",
            id="not a URL",
        ),
        pytest.param(
            {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://"},
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: expected a URL",
            id="no host",
        ),
    ],
)
def test_unsupported_variables_are_errors(environ, message):
    with pytest.raises(TracesError) as caught:
        collector_url(environ)
    assert str(caught.value).startswith(message)


def test_triton_flags_turn_tracing_off_without_a_collector():
    assert triton_flags() == ["--trace-config=level=off"]


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        pytest.param({}, "mobile_sam-triton", id="default name"),
        pytest.param({"OTEL_SERVICE_NAME": "masks"}, "masks-triton", id="service name"),
        pytest.param({"OTEL_RESOURCE_ATTRIBUTES": "service.name=masks,a=b"}, "masks-triton", id="resource attribute"),
    ],
)
def test_triton_flags_send_traces_to_the_collector(monkeypatch, variables, name):
    for variable, value in {"OTEL_EXPORTER_OTLP_ENDPOINT": BASE, **variables}.items():
        monkeypatch.setenv(variable, value)
    assert triton_flags() == [
        "--trace-config=mode=opentelemetry",
        f"--trace-config=opentelemetry,url={URL}",
        f"--trace-config=opentelemetry,resource=service.name={name}",
        "--trace-config=level=TIMESTAMPS",
        "--trace-config=rate=0",
    ]


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999", "http://:4318", "http://host:0", "http://host:port"])
def test_an_invalid_collector_address_is_rejected(url):
    with pytest.raises(TracesError, match="expected a URL such as"):
        collector_url({"OTEL_EXPORTER_OTLP_ENDPOINT": url})
