"""Shared memory of Triton's Python processes."""

import mmap
from pathlib import Path
from types import SimpleNamespace

import pytest

from utils.triton.installation import TritonSetupError
from utils.triton.shared_memory import check_shared_memory, remove_stale_shared_memory, shared_memory_problem


def test_remove_stale_shared_memory_keeps_regions_in_use(tmp_path):
    for name in ("mobile_sam_triton_1_dead", "mobile_sam_triton_1_running", "unrelated"):
        (tmp_path / name).write_bytes(bytes(4096))
    with (tmp_path / "mobile_sam_triton_1_running").open("r+b") as file, mmap.mmap(file.fileno(), 4096):
        removed = remove_stale_shared_memory(tmp_path)
    assert [region.name for region in removed] == ["mobile_sam_triton_1_dead"]
    assert {entry.name for entry in tmp_path.iterdir()} == {"mobile_sam_triton_1_running", "unrelated"}


def test_remove_stale_shared_memory_skips_regions_of_other_users(monkeypatch, tmp_path):
    for name in ("mobile_sam_triton_1_mine", "mobile_sam_triton_1_theirs"):
        (tmp_path / name).touch()
    unlink = Path.unlink

    def unlink_unless_theirs(path: Path, missing_ok: bool = False) -> None:
        if path.name.endswith("theirs"):
            raise PermissionError(1, "Operation not permitted", str(path))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink_unless_theirs)
    assert [region.name for region in remove_stale_shared_memory(tmp_path)] == ["mobile_sam_triton_1_mine"]


def test_too_little_shared_memory_error_names_the_remedy(monkeypatch, tmp_path):
    check_shared_memory()
    monkeypatch.setattr("utils.triton.shared_memory.shutil.disk_usage", lambda _: SimpleNamespace(free=63 * 2**20))
    with pytest.raises(TritonSetupError, match=r"63 MiB free, 256 MiB are needed: .*--shm-size=1g"):
        check_shared_memory()


def test_shared_memory_problem_reports_little_free_space(monkeypatch):
    monkeypatch.setattr("utils.triton.shared_memory.shutil.disk_usage", lambda _: SimpleNamespace(free=32 * 2**20))
    assert shared_memory_problem() == ""
    monkeypatch.setattr("utils.triton.shared_memory.shutil.disk_usage", lambda _: SimpleNamespace(free=31 * 2**20))
    assert shared_memory_problem() == "/dev/shm has 31 MiB free, 32 MiB are needed"
