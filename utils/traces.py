"""Where the traces of requests go: to the collector that OpenTelemetry's standard variables name, else nowhere.

A trace has the request as it came to the edge (`utils.edge.tracing`), the waits for a turn in Triton and the calls of
its models (`utils.spans`). Triton sends its part to the same collector by itself, below each call: the model that was
asked and those that this one asked, their queues and their work.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

ENDPOINT, TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
PROTOCOL, TRACES_PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
EXPORTER, DISABLED = "OTEL_TRACES_EXPORTER", "OTEL_SDK_DISABLED"
HTTP = "http/protobuf"
SERVICE = "mobile_sam"
"""What the service is called unless `OTEL_SERVICE_NAME` says otherwise."""


class TracesError(ValueError):
    """A variable asks for what this service cannot do; the message names it, what was expected and what came."""


def collector(environ: Mapping[str, str] = os.environ) -> str | None:
    """The URL that takes spans, as OTLP over HTTP; None where none is set or tracing is switched off.

    Raises:
        TracesError: a variable cannot be used.
    """
    exporter = environ.get(EXPORTER) or "otlp"
    if exporter == "none" or environ.get(DISABLED, "").lower() == "true":
        return None
    name, url = TRACES_ENDPOINT, environ.get(TRACES_ENDPOINT)
    if not url and environ.get(ENDPOINT):
        name, url = ENDPOINT, environ[ENDPOINT].rstrip("/") + "/v1/traces"
    if not url:
        return None
    if exporter != "otlp":
        raise TracesError(f"{EXPORTER}: expected otlp or none, got {exporter!r}")
    for variable in (TRACES_PROTOCOL, PROTOCOL):
        if protocol := environ.get(variable):
            if protocol != HTTP:
                raise TracesError(f"{variable}: expected {HTTP}, got {protocol!r}; collectors have it on port 4318")
            break
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or not _is_port(parts):
        raise TracesError(f"{name}: expected a URL such as http://collector:4318, got {environ[name]!r}")
    return url


def _is_port(parts: SplitResult) -> bool:
    try:
        return parts.port is None or parts.port > 0
    except ValueError:
        return False


def triton_flags() -> list[str]:
    """What tells Triton where its part of a trace goes, or that there are none.

    Raises:
        TracesError: as `collector`.
    """
    url = collector()
    if url is None:
        return ["--trace-config=level=off"]
    name = str(resource().attributes["service.name"])
    return [
        "--trace-config=mode=opentelemetry",
        f"--trace-config=opentelemetry,url={url}",
        f"--trace-config=opentelemetry,resource=service.name={name}-triton",
        "--trace-config=level=TIMESTAMPS",
        # Of requests that come with a trace all are recorded, whatever the rate; of others none.
        "--trace-config=rate=0",
    ]


def resource() -> Resource:
    """What the service is called, and what else `OTEL_RESOURCE_ATTRIBUTES` says of it."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415

    return Resource.create({"service.name": SERVICE}).merge(OTELResourceDetector().detect())
