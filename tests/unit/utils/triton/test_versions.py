"""Versions of the models and their links in Triton's folder."""

import os
from pathlib import Path

from tests.unit.utils.triton.conftest import add_version, remove_version
from utils.triton import versions
from utils.triton.versions import DECODER, ENCODER, LOAD_ORDER, REQUIRED_FILES


def test_load_order_has_every_model_after_those_it_calls():
    root = Path(__file__).resolve().parents[4] / "model_repository"
    assert set(LOAD_ORDER) == set(REQUIRED_FILES) == {path.parent.name for path in root.glob("*/config.pbtxt")}
    assert set(LOAD_ORDER[:2]) == {ENCODER, DECODER}


def test_versions_are_numbered_folders(deployment, tmp_path):
    repository = deployment.repository
    add_version(repository, 10)
    add_version(repository, 2)
    for name in ("0", "03", "-4", "five", "6.0", "configs"):
        (repository / "mobile_sam" / name).mkdir()
    (repository / "mobile_sam" / "7").touch()
    assert versions.versions(repository) == [1, 2, 10]
    assert versions.weights_record(repository) == {"name": "number 10"}
    assert versions.versions(tmp_path) == []
    assert versions.weights_record(tmp_path) == {}


def test_a_version_is_hidden_for_all_models_until_it_is_complete(deployment):
    add_version(deployment.repository, 2)
    deployment.show({2})
    for model in LOAD_ORDER:
        assert deployment.hide_incomplete() == set()
        path = deployment.repository / model / "1" / REQUIRED_FILES[model][-1]
        path.rename(deployment.repository / "away")
        assert versions.missing_files(deployment.repository, 1) == [path]
        hidden = deployment.hide_incomplete()
        assert hidden == deployment.hide_incomplete(hidden) == {1}
        assert [versions.versions(deployment.folder, each) for each in LOAD_ORDER] == [[2]] * len(LOAD_ORDER)
        (deployment.repository / "away").rename(path)
        assert deployment.hide_incomplete(hidden) == set()
        assert [versions.versions(deployment.folder, each) for each in LOAD_ORDER] == [[1, 2]] * len(LOAD_ORDER)


def test_each_replaced_file_is_detected_but_removed_files_and_new_versions_are_not(deployment):
    for model, files in REQUIRED_FILES.items():
        for file in files:
            path = deployment.repository / model / "1" / file
            before = deployment.file_stamps()
            content = path.read_bytes()
            path.unlink()
            assert {stamp[0].name for stamp in before - deployment.file_stamps()} == {file}
            assert not deployment.any_replaced(before)
            path.write_bytes(content)
            os.utime(path, ns=(0, 0))  # the new file may get the same inode within one tick of the file system's clock
            assert deployment.any_replaced(before)
    before = deployment.file_stamps()
    add_version(deployment.repository, 2)
    deployment.show({2})
    assert deployment.file_stamps() > before
    assert not deployment.any_replaced(before)


def test_sync_follows_the_repository_model_by_model(deployment):
    add_version(deployment.repository, 2)
    assert deployment.changes() == deployment.changes(["mobile_sam"]) == ({2}, set())
    deployment.sync("mobile_sam")
    assert deployment.changes(["mobile_sam"]) == (set(), set())
    assert deployment.changes() == ({2}, set())
    remove_version(deployment.repository, 1)
    assert deployment.changes(["mobile_sam"]) == (set(), {1})
    for _ in range(2):
        deployment.sync("mobile_sam")
        names = [entry.name for entry in sorted((deployment.folder / "mobile_sam").iterdir())]
        assert names == ["2", "config.pbtxt"]
