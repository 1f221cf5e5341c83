"""Versions of the models and their links in Triton's folder."""

import json
import shutil
from pathlib import Path
from unittest import mock

import pytest

from orchestrator.tensors import DECODER, ENCODER
from sam_onnx.repository import replace_file
from tests.unit.utils.triton.conftest import add_version, remove_version
from utils.triton import versions
from utils.triton.versions import LOAD_ORDER, REQUIRED_FILES, Deployment


def test_load_order_has_every_model_after_those_it_calls():
    root = Path(__file__).resolve().parents[4] / "model_repository"
    assert (
        set(LOAD_ORDER)
        == set(REQUIRED_FILES)
        == {path.parent.name for path in root.glob("*/config.pbtxt")}
    )
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


def contents(deployment: Deployment, model: str = "mobile_sam") -> dict[int, str]:
    """Return the name in the record of each version that Triton reads."""
    numbers = versions.versions(deployment.folder, model)
    return {
        number: versions.read_record(deployment.folder / model / str(number))["name"]
        for number in numbers
    }


def write_record(repository: Path, name: str, version: int = 1) -> None:
    """Replace the record of a version of a model, as an export does."""
    replace_file(
        repository / "mobile_sam" / str(version) / "weights.json",
        json.dumps({"name": name}).encode(),
    )


def test_missing_files_are_found_in_every_model(deployment):
    for model in LOAD_ORDER:
        path = deployment.repository / model / "1" / REQUIRED_FILES[model][-1]
        content = path.read_bytes()
        path.unlink()
        assert versions.missing_files(deployment.repository, 1) == [path]
        path.write_bytes(content)
    assert versions.missing_files(deployment.repository, 1) == []


def test_a_shown_version_keeps_its_files_after_the_repository_has_changed(deployment):
    write_record(deployment.repository, "other")
    assert contents(deployment) == {1: "number 1"}
    remove_version(deployment.repository, 1)
    assert contents(deployment) == {1: "number 1"}
    assert deployment.damage() == ""


def test_added_replaced_and_removed_versions_are_changes(deployment):
    assert deployment.changes() == (set(), set())
    add_version(deployment.repository, 2)
    assert deployment.changes() == ({2}, set())
    deployment.show(deployment.take([2]))
    assert deployment.changes() == (set(), set())
    write_record(deployment.repository, "other", 2)
    assert deployment.changes() == ({2}, set())
    remove_version(deployment.repository, 1)
    assert deployment.changes() == ({2}, {1})


@pytest.mark.parametrize("model", LOAD_ORDER)
def test_a_version_with_a_missing_or_an_added_file_has_changed(deployment, model):
    folder = deployment.repository / model / "1"
    (folder / "model.onnx.data").touch()
    assert deployment.changes() == ({1}, set())
    (folder / "model.onnx.data").unlink()
    assert deployment.changes() == (set(), set())
    (folder / REQUIRED_FILES[model][-1]).unlink()
    assert deployment.changes() == ({1}, set())


def test_a_replaced_version_is_shown_model_by_model_and_can_be_restored(deployment):
    before = deployment.links()
    write_record(deployment.repository, "other")
    snapshots = deployment.take([1])
    assert contents(deployment) == {1: "number 1"}
    deployment.show(snapshots, ["mobile_sam"])
    assert contents(deployment) == {1: "other"}
    assert contents(deployment, "mobile_sam_costly") == {1: "number 1"}
    deployment.remove_unused()
    deployment.restore(before)
    assert contents(deployment) == {1: "number 1"}
    deployment.remove_unused()
    assert not snapshots[1].exists()
    assert deployment.damage() == ""


def test_hidden_versions_leave_only_the_configuration(deployment):
    add_version(deployment.repository, 2)
    deployment.show(deployment.take([2]), ["mobile_sam"])
    deployment.hide({1}, ["mobile_sam"])
    deployment.hide({1}, ["mobile_sam"])
    names = [entry.name for entry in sorted((deployment.folder / "mobile_sam").iterdir())]
    assert names == ["2", "config.pbtxt"]


@pytest.mark.parametrize("model", LOAD_ORDER)
def test_a_changed_or_removed_file_of_any_model_is_damage(deployment, model):
    (folder,) = [target for (name, _), target in deployment.links().items() if name == model]
    file = folder / REQUIRED_FILES[model][-1]
    content = file.read_bytes()
    file.write_bytes(content + b" ")
    assert deployment.damage() == f"{file} has changed"
    file.write_bytes(content)
    assert deployment.damage() == ""
    file.unlink()
    assert deployment.damage() == f"{file} was removed"


@pytest.mark.parametrize("path", ["..", "../taken", ".", "mobile_sam"])
def test_an_emptied_folder_is_damage(deployment, path):
    shutil.rmtree((deployment.folder / path).resolve())
    assert deployment.damage() != ""


def test_a_snapshot_that_failed_leaves_nothing(deployment, monkeypatch):
    add_version(deployment.repository, 2)
    taken = deployment.folder.parent / "taken"
    before = set(taken.iterdir())
    monkeypatch.setattr(Deployment, "_check_networks", mock.Mock(side_effect=versions.MixedWeights))
    with pytest.raises(versions.MixedWeights):
        deployment.take([1, 2])
    assert set(taken.iterdir()) == before


def test_a_version_that_is_replaced_during_the_check_is_no_damage(deployment, monkeypatch):
    snapshots = deployment.take([1])
    first = {target.parent for target in deployment.links().values()}

    def check(folder: Path, model: str) -> str:
        deployment.show(snapshots)
        return "removed" if folder in first else ""

    monkeypatch.setattr("utils.triton.versions.snapshot.changed_file", check)
    assert deployment.damage() == ""


def test_a_damaged_version_that_is_hidden_is_no_damage(deployment):
    add_version(deployment.repository, 2)
    snapshots = deployment.take([2])
    deployment.show(snapshots)
    (snapshots[2] / "checksums.json").unlink()
    assert deployment.damage() == f"{snapshots[2] / 'checksums.json'} cannot be read"
    deployment.hide({2})
    assert deployment.damage() == ""
