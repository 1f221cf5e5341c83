"""Versions of the models, and their links in the folder that Triton reads."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from utils import versions
from utils.versions import CALLS, LOAD_ORDER, REQUIRED_FILES


def add(repository: Path, version: int) -> None:
    for model, files in REQUIRED_FILES.items():
        folder = repository / model / str(version)
        folder.mkdir(parents=True)
        for file in files:
            (folder / file).write_text(json.dumps({"name": f"number {version}"}))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    add(folder, 1)
    return folder


@pytest.fixture
def deployed(tmp_path: Path) -> Path:
    folder = tmp_path / "deployed"
    for model in LOAD_ORDER:
        (folder / model).mkdir(parents=True)
        (folder / model / "config.pbtxt").touch()
    return folder


def test_every_model_of_the_repository_has_its_place():
    root = Path(__file__).resolve().parents[3] / "model_repository"
    assert set(LOAD_ORDER) == set(REQUIRED_FILES) == {path.parent.name for path in root.glob("*/config.pbtxt")}
    for model, asked in CALLS.items():
        assert all(LOAD_ORDER.index(other) < LOAD_ORDER.index(model) for other in asked)


def test_versions_are_folders_with_a_number(repository):
    add(repository, 10)
    add(repository, 2)
    for name in ("0", "03", "-4", "five", "6.0", "configs"):
        (repository / "mobile_sam" / name).mkdir()
    (repository / "mobile_sam" / "7").touch()
    assert versions.versions(repository) == [1, 2, 10]
    assert versions.newest(repository) == 10


def test_of_a_repository_without_a_version_the_first_is_the_newest(tmp_path):
    assert versions.versions(tmp_path) == []
    assert versions.newest(tmp_path) == 1


def test_each_version_says_what_its_weights_are(repository):
    add(repository, 2)
    assert versions.weights_record(repository, 2) == {"name": "number 2"}
    assert versions.weights_record(repository, 3) is None


def test_a_part_of_any_version_is_missed(repository):
    add(repository, 2)
    assert versions.missing_files(repository, 2) == []
    lost = [repository / "mobile_sam_decoder" / "2" / "model.onnx", repository / "mobile_sam_cached" / "2" / "model.py"]
    for path in lost:
        path.unlink()
    lost[1].symlink_to("../nowhere")
    assert versions.missing_files(repository, 2) == lost
    assert versions.missing_files(repository, 1) == []


def test_all_of_a_version_that_is_not_there_is_missed(tmp_path):
    assert len(versions.missing_files(tmp_path, 1)) == sum(len(files) for files in REQUIRED_FILES.values())


@pytest.mark.parametrize("model", LOAD_ORDER)
def test_a_version_that_is_not_whole_is_shown_of_no_model(repository, deployed, model):
    add(repository, 2)
    for each in LOAD_ORDER:
        versions.sync_links(repository, deployed, each)
    versions.hide_incomplete(repository, deployed)
    assert [versions.versions(deployed, each) for each in LOAD_ORDER] == [[1, 2]] * len(LOAD_ORDER)
    (repository / model / "1").rename(repository / "away")
    versions.hide_incomplete(repository, deployed)
    assert [versions.versions(deployed, each) for each in LOAD_ORDER] == [[2]] * len(LOAD_ORDER)
    assert versions.hide_incomplete(repository, repository / "no such folder") == set()


@pytest.mark.parametrize("model", LOAD_ORDER)
def test_a_hidden_version_is_shown_again_once_it_is_whole(repository, deployed, model):
    add(repository, 2)
    versions.link(repository, deployed, model, 1)
    path = repository / model / "1" / REQUIRED_FILES[model][-1]
    path.rename(repository / "away")
    hidden = versions.hide_incomplete(repository, deployed)
    assert hidden == versions.hide_incomplete(repository, deployed, hidden) == {1}
    (repository / "away").rename(path)
    assert versions.hide_incomplete(repository, deployed, hidden) == set()
    assert [versions.versions(deployed, each) for each in LOAD_ORDER] == [[1]] * len(LOAD_ORDER)


@pytest.mark.parametrize(
    ("model", "file"), [(model, file) for model, files in REQUIRED_FILES.items() for file in files]
)
def test_replaced_notices_each_file_of_a_version(repository, deployed, model, file):
    for each in LOAD_ORDER:
        versions.sync_links(repository, deployed, each)
    before = versions.file_stamps(deployed)
    assert not versions.any_replaced(before)
    path = repository / model / "1" / file
    content = path.read_bytes()
    path.unlink()
    assert not versions.any_replaced(before)
    without = versions.file_stamps(deployed)
    path.write_bytes(content)
    os.utime(path, ns=(0, 0))  # a file system may give a new file the inode of the old one within a tick of its clock
    assert versions.any_replaced(before)
    assert versions.any_replaced(without)


def test_replaced_ignores_versions_that_come_and_go(repository, deployed):
    versions.sync_links(repository, deployed, "mobile_sam")
    before = versions.file_stamps(deployed)
    add(repository, 2)
    versions.link(repository, deployed, "mobile_sam", 2)
    versions.unlink(deployed, "mobile_sam", 1)
    assert not versions.any_replaced(before)


def test_what_the_repository_has_is_shown_and_what_it_has_no_longer_is_not(repository, deployed):
    versions.sync_links(repository, deployed, "mobile_sam")
    add(repository, 2)
    assert versions.changes(repository, deployed, "mobile_sam") == ([2], [])
    versions.sync_links(repository, deployed, "mobile_sam")
    assert versions.versions(deployed) == [1, 2]
    assert versions.weights_record(deployed, 2) == {"name": "number 2"}
    (repository / "mobile_sam" / "1").rename(repository / "away")
    assert versions.changes(repository, deployed, "mobile_sam") == ([], [1])
    versions.sync_links(repository, deployed, "mobile_sam")
    assert [entry.name for entry in sorted((deployed / "mobile_sam").iterdir())] == ["2", "config.pbtxt"]
    assert versions.changes(repository, deployed, "mobile_sam") == ([], [])


def test_a_version_that_another_process_shows_first_is_no_error(repository, deployed):
    for _ in range(2):
        versions.link(repository, deployed, "mobile_sam", 1)
    for _ in range(2):
        versions.unlink(deployed, "mobile_sam", 1)
    assert versions.versions(deployed) == []
