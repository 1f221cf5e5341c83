"""The real BentoML and the real Triton, started once for all end-to-end tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.server import ROOT, Server, make_repository, serving

REFERENCE = Path(os.environ.get("SHARED", ROOT.parent / "shared")) / "reference" / "mobile_sam_seed7.pt"


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model repository with the reference weights, or the built-in ones where the reference data is absent."""
    weights = str(REFERENCE) if REFERENCE.is_file() else "builtin"
    return make_repository(tmp_path_factory.mktemp("models") / "model_repository", weights)


@pytest.fixture(scope="session")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The service, shared by the tests that do not harm it."""
    with serving(
        tmp_path_factory.mktemp("server") / "log",
        MOBILE_SAM_MODEL_REPOSITORY=str(repository),
        MOBILE_SAM_ENGINE="openvino",
        MOBILE_SAM_MAX_IMAGE_PIXELS="20000000",
        MOBILE_SAM_ORCHESTRATORS="4",
    ) as running:
        yield running
