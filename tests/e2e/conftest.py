"""The service with the real BentoML and Triton, started once for all end-to-end tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.server import ROOT, Server, make_repository, serving

REFERENCE = Path(os.environ.get("SHARED", ROOT.parent / "shared")) / "reference" / "mobile_sam_seed7.pt"


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model repository with the reference weights, or the built-in weights without the reference data."""
    weights = str(REFERENCE) if REFERENCE.is_file() else "builtin"
    return make_repository(tmp_path_factory.mktemp("models") / "model_repository", weights)


@pytest.fixture(scope="session")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run the service shared by all tests that leave it intact."""
    with serving(
        tmp_path_factory.mktemp("server") / "log",
        MOBILE_SAM_MODEL_REPOSITORY=str(repository),
        MOBILE_SAM_ENGINE="openvino",
        MOBILE_SAM_MAX_IMAGE_PIXELS="20000000",
        MOBILE_SAM_ORCHESTRATORS="4",
    ) as running:
        yield running
