"""Fixtures for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.server import ROOT, Server, ends_of_those_left, make_repository, serving

LANES = {
    "tests/browser": "built-in weights",
    "tests/unit/deploy/test_monitoring.py": "built-in weights",
    "tests/e2e/test_docs.py": "built-in weights",
    "tests/e2e/examples": "examples",
    "tests/e2e": "services",
    "tests/storage": "services",
}
"""Where tests run side by side: files whose tests share services, by the first path that fits."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """For `pytest -n`: a file's tests after each other in one process, and so those of all files of a lane."""
    config.option.loadscopereorder = False  # as collected: lanes come first, which last the longest
    scheduler = import_module("xdist.scheduler").LoadFileScheduling(config, log)
    file_of = scheduler._split_scope

    def scope_of(nodeid: str) -> str:
        file: str = file_of(nodeid)
        return next((lane for path, lane in LANES.items() if file.startswith(path)), file)

    scheduler._split_scope = scope_of
    return scheduler


@pytest.fixture(scope="session", autouse=True)
def _services_end_well() -> Iterator[None]:
    """Nobody waits for the services that tests leave, but in the end."""
    yield
    ends = ends_of_those_left()
    assert set(ends.values()) <= {0}, ends


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data beside the repository; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no reference data at {folder}; set SHARED to where it lies")
    return folder


@pytest.fixture(scope="session")
def builtin_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model repository with the built-in weights, which find what a person means."""
    return make_repository(tmp_path_factory.mktemp("builtin") / "model_repository", "builtin")


@pytest.fixture(scope="session")
def builtin_server(builtin_repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The service as `make serve WEIGHTS=builtin` starts it, shared by the tests that do not harm it."""
    log = tmp_path_factory.mktemp("builtin_server") / "log"
    with serving(log, MOBILE_SAM_MODEL_REPOSITORY=str(builtin_repository)) as running:
        yield running
