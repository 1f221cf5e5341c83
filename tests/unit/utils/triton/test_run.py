"""The state and the memory that the processes of a running service share."""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from utils.triton import run as module
from utils.triton.installation import TritonSetupError
from utils.triton.run import (
    SHARED_MEMORY,
    RunState,
    check_shared_memory,
    clean_up,
    shared_memory_problem,
)

ROOT = Path(__file__).resolve().parents[4]
SERVICE = """
import os
from pathlib import Path
from utils.triton import run as module
module.SHARED_MEMORY = Path(os.environ["MEMORY"])
run = module.RunState.current()
assert module.RunState.current() == run
folder = Path(run.folder)
assert folder.stat().st_mode & 0o777 == 0o700
module.clean_up(folder.parent)
assert folder.exists()
print(folder)
"""


@pytest.mark.parametrize(
    "memory", [SHARED_MEMORY, Path("/nowhere")], ids=["in memory", "without shared memory"]
)
def test_folder_is_private_inherited_and_removed_at_exit(tmp_path, memory):
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("MOBILE_SAM_TRITON_")
    }
    environment = {**own, "TMPDIR": str(tmp_path), "MEMORY": str(memory)}
    ran = subprocess.run(
        [sys.executable, "-c", SERVICE],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    folder = Path(ran.stdout.strip())
    assert folder.parent == (memory if memory.is_dir() else tmp_path)
    assert not folder.exists()


def test_a_removed_folder_is_restored_private_and_locked(tmp_path):
    folder = tmp_path / "mobile_sam_triton_1_a"
    run = RunState(str(folder), "key", 8002)
    assert run.restore_folder()
    assert not run.restore_folder()
    assert sorted(tmp_path.rglob("*")) == [folder, folder / "metrics"]
    assert folder.stat().st_mode & 0o777 == 0o700
    clean_up(tmp_path)
    assert folder.exists()


def test_clean_up_keeps_folders_and_regions_of_running_services(monkeypatch, tmp_path):
    dead, running = tmp_path / "mobile_sam_triton_1_a", tmp_path / "mobile_sam_triton_1_b"
    for folder in (dead, running):
        (folder / "metrics").mkdir(parents=True)
    for name in (f"{dead.name}_1", f"{running.name}_1", "mobile_sam_triton_2_c_1", "unrelated"):
        (tmp_path / name).touch()
    held = os.open(running, os.O_RDONLY)
    # Perhaps by another container, whose processes are not visible here.
    fcntl.flock(held, fcntl.LOCK_SH)
    with monkeypatch.context() as patched:
        # Another user's regions.
        patched.setattr(Path, "unlink", mock.Mock(side_effect=PermissionError))
        clean_up(tmp_path)
    clean_up(tmp_path)
    kept = {entry.name for entry in tmp_path.iterdir()}
    assert kept == {running.name, f"{running.name}_1", "unrelated"}
    os.close(held)
    clean_up(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["unrelated"]
    clean_up(tmp_path / "nowhere")


def test_too_little_shared_memory_is_reported(monkeypatch, tmp_path):
    def set_free(mebibytes: int) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=mebibytes * 2**20))

    set_free(1000)
    check_shared_memory()
    assert shared_memory_problem() == ""
    set_free(255)
    with pytest.raises(TritonSetupError, match=r"/dev/shm has less than 256 MiB free: enlarge it"):
        check_shared_memory()
    set_free(31)
    assert shared_memory_problem() == "/dev/shm has less than 32 MiB free"
    monkeypatch.setattr(module, "SHARED_MEMORY", tmp_path / "nowhere")
    with pytest.raises(TritonSetupError, match="nowhere has less than 256 MiB free"):
        check_shared_memory()
