"""The service built as a Bento and served from the Bento store as `mobile_sam:latest`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.server import ROOT, serving
from utils.api.openapi import EXAMPLE

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PARTS = (
    "service.py",
    "bentofile.yaml",
    "README.md",
    "LICENSE",
    "requirements",
    "orchestrator",
    "utils",
    "triton_backends",
)


def test_bento_serves_without_its_project_folder(builtin_repository, tmp_path):
    project, home = tmp_path / "project", tmp_path / "bentoml"
    project.mkdir()
    for part in PARTS:
        source = ROOT / part
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, project / part)
    shutil.copytree(builtin_repository, project / "model_repository", symlinks=True)
    environment = {**os.environ, "BENTOML_HOME": str(home), "BENTOML_DO_NOT_TRACK": "True"}
    bentoml = Path(sys.executable).parent / "bentoml"
    built = subprocess.run(
        [bentoml, "build"], cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert built.returncode == 0, built.stdout + built.stderr
    shutil.rmtree(project)

    (bento,) = (home / "bentos" / "mobile_sam").glob("*/src")
    for file in (path for path in builtin_repository.rglob("*") if path.is_file()):
        if file.parent.name != "__pycache__":
            assert (bento / "model_repository" / file.relative_to(builtin_repository)).is_file()

    with serving(tmp_path / "log", "mobile_sam:latest", BENTOML_HOME=str(home)) as server:
        assert server.post(**EXAMPLE).status_code == 200
