"""Versions of the models and their links in Triton's folder."""

import os
from pathlib import Path

import pytest

from tests.unit.utils.triton.conftest import add_version, remove_version
from utils.triton import versions
from utils.triton.versions import CALLS, LOAD_ORDER, REQUIRED_FILES


def test_load_order_has_every_model_after_those_it_calls():
    root = Path(__file__).resolve().parents[4] / "model_repository"
    assert set(LOAD_ORDER) == set(REQUIRED_FILES) == {path.parent.name for path in root.glob("*/config.pbtxt")}
    for model, called in CALLS.items():
        assert all(LOAD_ORDER.index(other) < LOAD_ORDER.index(model) for other in called)


def test_versions_are_numbered_folders(repository, tmp_path):
    add_version(repository, 10)
    add_version(repository, 2)
    for name in ("0", "03", "-4", "five", "6.0", "configs"):
        (repository / "mobile_sam" / name).mkdir()
    (repository / "mobile_sam" / "7").touch()
    assert versions.versions(repository) == [1, 2, 10]
    assert versions.newest(repository) == 10
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
    assert len(versions.missing_files(repository, 3)) == sum(len(files) for files in REQUIRED_FILES.values())


def shown(deployed: Path) -> list[int]:
    """Return the versions that are linked for every model."""
    (found,) = {tuple(versions.versions(deployed, model)) for model in LOAD_ORDER}
    return list(found)


@pytest.mark.parametrize("model", LOAD_ORDER)
def test_a_version_is_hidden_for_all_models_until_it_is_complete(repository, deployed, model):
    add_version(repository, 2)
    for each in LOAD_ORDER:
        versions.sync_links(repository, deployed, each)
    assert versions.hide_incomplete(repository, deployed) == set()
    assert shown(deployed) == [1, 2]
    path = repository / model / "1" / REQUIRED_FILES[model][-1]
    path.rename(repository / "away")
    hidden = versions.hide_incomplete(repository, deployed)
    assert hidden == versions.hide_incomplete(repository, deployed, hidden) == {1}
    assert shown(deployed) == [2]
    (repository / "away").rename(path)
    assert versions.hide_incomplete(repository, deployed, hidden) == set()
    assert shown(deployed) == [1, 2]
    assert versions.hide_incomplete(repository, repository / "no such folder") == set()


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
    versions.link(repository, deployed, "mobile_sam", 2)  # again
    assert versions.versions(deployed) == [1, 2]
    assert versions.weights_record(deployed, 2) == {"name": "number 2"}
    remove_version(repository, 1)
    assert versions.changes(repository, deployed, "mobile_sam") == ([], [1])
    versions.sync_links(repository, deployed, "mobile_sam")
    versions.unlink(deployed, "mobile_sam", 1)  # again
    assert [entry.name for entry in sorted((deployed / "mobile_sam").iterdir())] == ["2", "config.pbtxt"]
    assert versions.changes(repository, deployed, "mobile_sam") == ([], [])
