"""Configuration of tracing by OpenTelemetry's standard variables; without a collector nothing is traced.

A trace contains the request at the edge (`tracing.py`), the waits for a slot in Triton and the calls of its models
(`spans.py`). Triton sends child spans of each call to the same collector: the called models with their queueing and
execution times.
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
"""Default of `OTEL_SERVICE_NAME`."""


class TracesError(ValueError):
    """Unsupported or invalid value of an OpenTelemetry variable."""


def collector_url(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the URL for spans as OTLP over HTTP, or None if tracing is off.

    Raises:
        TracesError: a variable has an unsupported value.
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
                raise TracesError(f"{variable}: expected {HTTP}, got {protocol!r}; collectors offer it on port 4318")
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
    """Return the flags of `tritonserver` that configure tracing.

    Raises:
        TracesError: as `collector_url`.
    """
    url = collector_url()
    if url is None:
        return ["--trace-config=level=off"]
    name = str(resource().attributes["service.name"])
    return [
        "--trace-config=mode=opentelemetry",
        f"--trace-config=opentelemetry,url={url}",
        f"--trace-config=opentelemetry,resource=service.name={name}-triton",
        "--trace-config=level=TIMESTAMPS",
        # A rate of 0 still records every request that carries a trace.
        "--trace-config=rate=0",
    ]


def resource() -> Resource:
    """Return the service name and other resource attributes, from the environment."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415

    return Resource.create({"service.name": SERVICE}).merge(OTELResourceDetector().detect())
