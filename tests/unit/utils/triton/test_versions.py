"""Versions of the models and their links in Triton's folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from utils.triton import versions
from utils.triton.versions import CALLS, LOAD_ORDER, REQUIRED_FILES


def add_version(repository: Path, version: int) -> None:
    for model, files in REQUIRED_FILES.items():
        folder = repository / model / str(version)
        folder.mkdir(parents=True)
        for file in files:
            (folder / file).write_text(json.dumps({"name": f"number {version}"}))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    add_version(folder, 1)
    return folder


@pytest.fixture
def deployed(tmp_path: Path) -> Path:
    folder = tmp_path / "deployed"
    for model in LOAD_ORDER:
        (folder / model).mkdir(parents=True)
        (folder / model / "config.pbtxt").touch()
    return folder


def test_load_order_has_every_model_after_those_it_calls():
    root = Path(__file__).resolve().parents[4] / "model_repository"
    assert set(LOAD_ORDER) == set(REQUIRED_FILES) == {path.parent.name for path in root.glob("*/config.pbtxt")}
    for model, called in CALLS.items():
        assert all(LOAD_ORDER.index(other) < LOAD_ORDER.index(model) for other in called)


def test_versions_are_numbered_folders(repository):
    add_version(repository, 10)
    add_version(repository, 2)
    for name in ("0", "03", "-4", "five", "6.0", "configs"):
        (repository / "mobile_sam" / name).mkdir()
    (repository / "mobile_sam" / "7").touch()
    assert versions.versions(repository) == [1, 2, 10]
    assert versions.newest(repository) == 10


def test_newest_is_1_without_versions(tmp_path):
    assert versions.versions(tmp_path) == []
    assert versions.newest(tmp_path) == 1


def test_weights_record_is_read_per_version(repository):
    add_version(repository, 2)
    assert versions.weights_record(repository, 2) == {"name": "number 2"}
    assert versions.weights_record(repository, 3) is None


def test_missing_files_are_found_per_version(repository):
    add_version(repository, 2)
    assert versions.missing_files(repository, 2) == []
    lost = [repository / "mobile_sam_decoder" / "2" / "model.onnx", repository / "mobile_sam_cached" / "2" / "model.py"]
    for path in lost:
        path.unlink()
    lost[1].symlink_to("../nowhere")
    assert versions.missing_files(repository, 2) == lost
    assert versions.missing_files(repository, 1) == []


def test_all_files_of_an_absent_version_are_missing(tmp_path):
    assert len(versions.missing_files(tmp_path, 1)) == sum(len(files) for files in REQUIRED_FILES.values())


@pytest.mark.parametrize("model", LOAD_ORDER)
def test_an_incomplete_version_is_hidden_for_all_models(repository, deployed, model):
    add_version(repository, 2)
    for each in LOAD_ORDER:
        versions.sync_links(repository, deployed, each)
    versions.hide_incomplete(repository, deployed)
    assert [versions.versions(deployed, each) for each in LOAD_ORDER] == [[1, 2]] * len(LOAD_ORDER)
    (repository / model / "1").rename(repository / "away")
    versions.hide_incomplete(repository, deployed)
    assert [versions.versions(deployed, each) for each in LOAD_ORDER] == [[2]] * len(LOAD_ORDER)
    assert versions.hide_incomplete(repository, repository / "no such folder") == set()


@pytest.mark.parametrize("model", LOAD_ORDER)
def test_a_hidden_version_is_shown_again_when_complete(repository, deployed, model):
    add_version(repository, 2)
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
def test_any_replaced_detects_each_file(repository, deployed, model, file):
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
    os.utime(path, ns=(0, 0))  # the new file may get the same inode within one tick of the file system's clock
    assert versions.any_replaced(before)
    assert versions.any_replaced(without)


def test_any_replaced_ignores_added_and_removed_versions(repository, deployed):
    versions.sync_links(repository, deployed, "mobile_sam")
    before = versions.file_stamps(deployed)
    add_version(repository, 2)
    versions.link(repository, deployed, "mobile_sam", 2)
    versions.unlink(deployed, "mobile_sam", 1)
    assert not versions.any_replaced(before)


def test_sync_links_follows_the_repository(repository, deployed):
    versions.sync_links(repository, deployed, "mobile_sam")
    add_version(repository, 2)
    assert versions.changes(repository, deployed, "mobile_sam") == ([2], [])
    versions.sync_links(repository, deployed, "mobile_sam")
    assert versions.versions(deployed) == [1, 2]
    assert versions.weights_record(deployed, 2) == {"name": "number 2"}
    (repository / "mobile_sam" / "1").rename(repository / "away")
    assert versions.changes(repository, deployed, "mobile_sam") == ([], [1])
    versions.sync_links(repository, deployed, "mobile_sam")
    assert [entry.name for entry in sorted((deployed / "mobile_sam").iterdir())] == ["2", "config.pbtxt"]
    assert versions.changes(repository, deployed, "mobile_sam") == ([], [])


def test_link_and_unlink_are_idempotent(repository, deployed):
    for _ in range(2):
        versions.link(repository, deployed, "mobile_sam", 1)
    for _ in range(2):
        versions.unlink(deployed, "mobile_sam", 1)
    assert versions.versions(deployed) == []
