"""The service built as a Bento and served from the Bento store as `mobile_sam:latest`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.e2e.server import ROOT, serving
from utils.api.openapi import EXAMPLE

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

BENTOML = Path(sys.executable).parent / "bentoml"
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


def build_bento(repository: Path, folder: Path, base_image: str = "") -> dict[str, str]:
    """Build a Bento, remove the project's folder, and return the variables of its store.

    Args:
        repository: its models.
        folder: an empty folder.
        base_image: the base of its image, instead of BentoML's for the distribution in bentofile.yaml.
    """
    project = folder / "project"
    project.mkdir()
    for part in PARTS:
        source = ROOT / part
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, project / part)
    shutil.copytree(repository, project / "model_repository", symlinks=True)
    if base_image:
        options = yaml.safe_load((project / "bentofile.yaml").read_text())
        options["docker"] = {"base_image": base_image, "env": options["docker"]["env"]}
        (project / "bentofile.yaml").write_text(yaml.safe_dump(options))
    store = {"BENTOML_HOME": str(folder / "bentoml"), "BENTOML_DO_NOT_TRACK": "True"}
    environment = {**os.environ, **store}
    built = subprocess.run(
        [BENTOML, "build"], cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert built.returncode == 0, built.stdout + built.stderr
    shutil.rmtree(project)
    return store


def test_bento_serves_without_its_project_folder(builtin_repository, tmp_path):
    home = build_bento(builtin_repository, tmp_path)["BENTOML_HOME"]
    (bento,) = (Path(home) / "bentos" / "mobile_sam").glob("*/src")
    for file in (path for path in builtin_repository.rglob("*") if path.is_file()):
        if file.parent.name != "__pycache__":
            assert (bento / "model_repository" / file.relative_to(builtin_repository)).is_file()

    with serving(tmp_path / "log", "mobile_sam:latest", BENTOML_HOME=home) as server:
        assert server.post(**EXAMPLE).status_code == 200
