"""A short form of `make chaos`: what befalls the service, and that it comes through, however long that takes here."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import pytest

from tests.chaos import scenarios
from tests.chaos.scenarios import Scenario, Start

pytestmark = pytest.mark.e2e
TIMES = {"s", "ms", "answers/s"}


@pytest.fixture
def start(repository: Path, tmp_path: Path) -> Start:
    """Starts services with the models of the other tests."""
    return partial(scenarios.starter(tmp_path), MOBILE_SAM_MODEL_REPOSITORY=str(repository))


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(scenarios.killed_triton, id="Triton is killed"),
        pytest.param(partial(scenarios.killed_stubs, models=["mobile_sam_encoder"]), id="a model's process is killed"),
        pytest.param(scenarios.stopped, id="Triton hangs"),
        pytest.param(scenarios.killed_worker, id="an API worker is killed"),
        pytest.param(scenarios.killed_service, id="the service is killed"),
        pytest.param(partial(scenarios.told_to_stop, times=1), id="the service is told to stop"),
        pytest.param(partial(scenarios.overload, seconds=4), id="too many callers"),
        pytest.param(partial(scenarios.bombs, gigabytes=0.1), id="bombs"),
    ],
)
def test_the_service_comes_through(start: Start, scenario: Scenario):
    figures = list(scenario(start))
    assert figures
    for figure in figures:
        assert math.isfinite(figure.value), figure
        assert figure.met or figure.unit in TIMES, figure
