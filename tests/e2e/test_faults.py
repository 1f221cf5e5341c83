"""A short form of `make chaos`: the service must recover from injected faults; speed is not
checked.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from harness import Server, launch_server
from tests.chaos.figures import Scenario, Start, end
from tests.chaos.scenarios import bodies, connections, forging, kills, load

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]
SPEED_UNITS = {"s", "ms", "answers/s"}


@pytest.fixture(scope="module")
def start(builtin_repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Return a function that reuses a service with the same settings from an earlier scenario or
    starts a new one.
    """
    running: dict[str, Server] = {}

    @contextmanager
    def start_or_reuse(
        port: int | None = None, through: Sequence[str] = (), **settings: str
    ) -> Iterator[Server]:
        assert not through, "these scenarios share services"
        # In a container, BentoML restarts nothing; the format is the default, and named in a
        # scenario.
        settings = {"BENTOML_CONTAINERIZED": "true", "MOBILE_SAM_LOG_FORMAT": "text"} | settings
        server = running.pop(str(settings), None)
        if port or server is None or server.process.poll() is not None:
            log = tmp_path_factory.mktemp("faults") / "log"
            server = launch_server(
                log, port=port, MOBILE_SAM_MODEL_REPOSITORY=str(builtin_repository), **settings
            )
            server.wait_until_ready()
        try:
            yield server
        except BaseException:
            end(server)
            raise
        if server.process.poll() is None:
            running[str(settings)] = server

    yield start_or_reuse
    for server in running.values():
        server.request_stop()


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(kills.killed_triton, id="Triton is killed"),
        pytest.param(
            partial(kills.killed_stubs, models=["mobile_sam_encoder"]),
            id="a model process is killed",
        ),
        pytest.param(partial(load.overload, seconds=2), id="too many callers"),
        pytest.param(partial(bodies.bombs, gigabytes=0.1), id="decompression bombs"),
        pytest.param(partial(connections.heads, seconds=4), id="endless headers and trailers"),
        pytest.param(partial(forging.forged_lines, count=100), id="hostile strings"),
        pytest.param(kills.killed_service, id="the service is killed"),
        pytest.param(kills.stopped, id="Triton hangs"),
        pytest.param(kills.killed_worker, id="an API worker is killed"),
    ],
)
def test_service_recovers(start: Start, scenario: Scenario):
    figures = list(scenario(start))
    assert figures
    for figure in figures:
        assert math.isfinite(figure.value), figure
        assert figure.met or figure.unit in SPEED_UNITS, figure
