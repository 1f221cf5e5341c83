"""The running services that end-to-end tests share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.collector import Collector, running_collector
from tests.e2e.server import KEYS, ORIGIN, Server, serving


@pytest.fixture(scope="session")
def server(builtin_server: Server) -> Server:
    """Return the service with default settings, for tests that leave it intact."""
    return builtin_server


@pytest.fixture(scope="session")
def collector() -> Iterator[Collector]:
    with running_collector() as running:
        yield running


@pytest.fixture(scope="session")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text("# callers\n" + "".join(f"{name}:{key}\n" for name, key in KEYS.items()))
    file.chmod(0o600)
    return file


@pytest.fixture(scope="session")
def keyed(
    builtin_repository: Path, key_file: Path, collector: Collector, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Run a service with API keys, a rate limit, CORS, JSON logs and traces."""
    with serving(
        tmp_path_factory.mktemp("keyed") / "log",
        MOBILE_SAM_MODEL_REPOSITORY=str(builtin_repository),
        MOBILE_SAM_API_KEYS_FILE=str(key_file),
        MOBILE_SAM_METRICS="key",
        MOBILE_SAM_LOG_FORMAT="json",
        MOBILE_SAM_CORS_ORIGINS=ORIGIN,
        MOBILE_SAM_RATE_LIMIT="200/hour",
        BENTOML_CONFIG_OPTIONS="api_server.workers=2",
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
        OTEL_SERVICE_NAME="masks",
        OTEL_BSP_SCHEDULE_DELAY="100",
    ) as running:
        yield running
