"""Where traces go, by OpenTelemetry's variables."""

from __future__ import annotations

import os

import pytest

from utils.traces import TracesError, collector_url, triton_flags

BASE = "http://collector:4318"
URL = "http://collector:4318/v1/traces"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("environ", "url"),
    [
        pytest.param({}, None, id="nothing set"),
        pytest.param({"OTEL_SERVICE_NAME": "mine", "OTEL_TRACES_SAMPLER": "always_on"}, None, id="no collector"),
        pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": BASE}, URL, id="a collector of everything"),
        pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": BASE + "/"}, URL, id="with a slash"),
        pytest.param({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://c/x"}, "https://c/x", id="of traces, as it is"),
        pytest.param(
            {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/x", "OTEL_EXPORTER_OTLP_ENDPOINT": BASE},
            "http://c/x",
            id="that of traces comes first",
        ),
        pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, None, id="an empty one is none"),
        pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": BASE, "OTEL_SDK_DISABLED": "TRUE"}, None, id="switched off"),
        pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": BASE, "OTEL_TRACES_EXPORTER": "none"}, None, id="no exporter"),
        pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": BASE, "OTEL_TRACES_EXPORTER": "otlp"}, URL, id="the exporter"),
        pytest.param(
            {"OTEL_EXPORTER_OTLP_ENDPOINT": BASE, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
            URL,
            id="the protocol",
        ),
        pytest.param(
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": BASE,
                "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            },
            URL,
            id="gRPC for everything else",
        ),
    ],
)
def test_the_collector_is_the_one_that_is_named(environ, url):
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
            id="another exporter",
        ),
        pytest.param(
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"},
            "OTEL_EXPORTER_OTLP_ENDPOINT: expected a URL such as http://collector:4318, got 'collector:4318'",
            id="no URL",
        ),
        pytest.param(
            {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://"},
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: expected a URL",
            id="no host",
        ),
    ],
)
def test_what_cannot_be_done_is_said(environ, message):
    with pytest.raises(TracesError) as caught:
        collector_url(environ)
    assert str(caught.value).startswith(message)


def test_without_a_collector_triton_traces_nothing():
    assert triton_flags() == ["--trace-config=level=off"]


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        pytest.param({}, "mobile_sam-triton", id="by default"),
        pytest.param({"OTEL_SERVICE_NAME": "masks"}, "masks-triton", id="a name"),
        pytest.param({"OTEL_RESOURCE_ATTRIBUTES": "service.name=masks,a=b"}, "masks-triton", id="an attribute"),
    ],
)
def test_triton_sends_to_the_same_collector_what_comes_with_a_trace(monkeypatch, variables, name):
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
def test_an_address_that_cannot_be_is_refused(url):
    with pytest.raises(TracesError, match="expected a URL such as"):
        collector_url({"OTEL_EXPORTER_OTLP_ENDPOINT": url})
