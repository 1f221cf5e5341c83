"""Snapshots of versions: what is linked, copied and checked."""

import os
import threading
from pathlib import Path

import pytest

from sam_onnx import repository as writer
from sam_onnx.repository import replace_file
from utils.triton import snapshot
from utils.triton.snapshot import MIN_LINKED_BYTES, changed_file, is_current, take

LARGE, SMALL = b"w" * MIN_LINKED_BYTES, b"code"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a large and a small file, and with files that are nobody's weights."""
    folder = tmp_path / "models" / "net" / "1"
    (folder / "__pycache__").mkdir(parents=True)
    (folder / "model.onnx").write_bytes(LARGE)
    (folder / "model.py").write_bytes(SMALL)
    (folder / "__pycache__" / "model.pyc").touch()
    (folder / ".model.onnx.123").touch()
    return tmp_path / "models"


@pytest.fixture
def taken(repository: Path, tmp_path: Path) -> Path:
    take(repository, 1, ["net", "absent"], tmp_path / "taken")
    return tmp_path / "taken"


def files(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.is_file()]


def test_large_files_are_hard_links_and_small_ones_copies(repository, taken):
    assert files(taken) == ["checksums.json", "net/model.onnx", "net/model.py"]
    assert (taken / "net" / "model.onnx").samefile(repository / "net" / "1" / "model.onnx")
    assert not (taken / "net" / "model.py").samefile(repository / "net" / "1" / "model.py")
    assert changed_file(taken, "net") == ""
    assert is_current(repository / "net" / "1", taken, "net")


def test_replaced_files_leave_the_snapshot_alone(repository, taken):
    for name in ("model.onnx", "model.py"):
        replace_file(repository / "net" / "1" / name, b"other")
    assert (taken / "net" / "model.onnx").read_bytes() == LARGE
    assert (taken / "net" / "model.py").read_bytes() == SMALL
    assert changed_file(taken, "net") == ""
    assert not is_current(repository / "net" / "1", taken, "net")


def test_a_file_that_is_written_in_place_is_found(repository, taken):
    with (repository / "net" / "1" / "model.onnx").open("r+b") as file:
        file.write(b"x")
    assert changed_file(taken, "net") == f"{taken / 'net' / 'model.onnx'} has changed"
    assert not is_current(repository / "net" / "1", taken, "net")


def test_added_and_removed_files_are_found(taken):
    (taken / "net" / "added").touch()
    assert changed_file(taken, "net") == f"{taken / 'net' / 'added'} was added"
    (taken / "net" / "added").unlink()
    (taken / "net" / "model.py").unlink()
    assert changed_file(taken, "net") == f"{taken / 'net' / 'model.py'} was removed"


def test_a_list_without_the_files_is_no_list_of_them(taken):
    (taken / "checksums.json").write_text("{}")
    assert changed_file(taken, "net") == f"{taken / 'net' / 'model.onnx'} was added"


@pytest.mark.parametrize("content", ["", "[]", '{"net/model.py": 3}', '{"net/model.py": {}}'])
def test_an_invalid_list_of_checksums_is_found(repository, taken, content):
    (taken / "checksums.json").write_text(content)
    assert changed_file(taken, "net").endswith("cannot be read")
    assert not is_current(repository / "net" / "1", taken, "net")


def refuse(*_: object) -> None:
    raise OSError("another disk")


def test_without_hard_links_files_are_copied(repository, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", refuse)
    take(repository, 1, ["net"], tmp_path / "taken")
    (repository / "net" / "1" / "model.onnx").write_bytes(b"other")
    assert (tmp_path / "taken" / "net" / "model.onnx").read_bytes() == LARGE
    assert changed_file(tmp_path / "taken", "net") == ""


def test_huge_files_that_nobody_can_write_are_linked_by_name_where_hard_links_are_refused(
    repository, tmp_path, monkeypatch
):
    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(snapshot, "MAX_COPIED_BYTES", MIN_LINKED_BYTES - 1)
    monkeypatch.setattr(os, "access", lambda *_: False)
    take(repository, 1, ["net"], tmp_path / "taken")
    assert (
        tmp_path / "taken" / "net" / "model.onnx"
    ).readlink() == repository / "net" / "1" / "model.onnx"
    assert not (tmp_path / "taken" / "net" / "model.py").is_symlink()
    replace_file(repository / "net" / "1" / "model.onnx", b"a new image")
    assert (
        changed_file(tmp_path / "taken", "net")
        == f"{tmp_path / 'taken' / 'net' / 'model.onnx'} has changed"
    )


def test_a_linked_weights_file_is_taken_by_content(repository, tmp_path):
    file = repository / "net" / "1" / "model.onnx"
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    take(repository, 1, ["net"], tmp_path / "taken")
    file.unlink()
    assert (tmp_path / "taken" / "net" / "model.onnx").read_bytes() == LARGE


def test_a_snapshot_waits_for_the_end_of_an_export(repository):
    events: list[str] = []
    with writer._locked(repository):
        waiting = threading.Thread(target=lambda: _enter(repository, events))
        waiting.start()
        waiting.join(0.2)
        events.append("exported")
    waiting.join()
    assert events == ["exported", "taken"]


def _enter(repository: Path, events: list[str]) -> None:
    with snapshot.unchanged(repository):
        events.append("taken")
