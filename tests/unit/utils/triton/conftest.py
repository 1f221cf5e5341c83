"""Model repositories whose files are not read, and Triton's folder of links to one."""

import json
import shutil
from pathlib import Path

import pytest

from utils.triton.versions import LOAD_ORDER, REQUIRED_FILES


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
def repository(tmp_path: Path) -> Path:
    """A repository with version 1."""
    folder = tmp_path / "repository"
    add_version(folder, 1)
    return folder


@pytest.fixture
def deployed(tmp_path: Path) -> Path:
    """A folder of all models without a version."""
    folder = tmp_path / "deployed"
    for model in LOAD_ORDER:
        (folder / model).mkdir(parents=True)
        (folder / model / "config.pbtxt").touch()
    return folder
