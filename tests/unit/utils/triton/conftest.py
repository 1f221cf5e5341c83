"""Model repositories whose files are not read, and Triton's folder of links to one."""

import json
import shutil
from pathlib import Path

import pytest

from utils.triton.versions import LOAD_ORDER, REQUIRED_FILES, Deployment


def add_version(repository: Path, version: int) -> None:
    """Write all required files of a version."""
    for model, files in REQUIRED_FILES.items():
        folder = repository / model / str(version)
        folder.mkdir(parents=True)
        for file in files:
            (folder / file).write_text(json.dumps({"name": f"number {version}"}))


def remove_version(repository: Path, version: int) -> None:
    """Remove all files of a version."""
    for model in REQUIRED_FILES:
        shutil.rmtree(repository / model / str(version))


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    """A repository with version 1, and Triton's folder of links to a snapshot of it."""
    made = Deployment(tmp_path / "repository", tmp_path / "deployed")
    add_version(made.repository, 1)
    for model in LOAD_ORDER:
        (made.folder / model).mkdir(parents=True)
        (made.folder / model / "config.pbtxt").touch()
    made.show(made.take([1]))
    return made
