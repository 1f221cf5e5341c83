"""The state and the memory that the processes of a running service share."""

import fcntl
import json
import mmap
import os
import shutil
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from utils.triton import health
from utils.triton.installation import TritonSetupError
from utils.triton.run import (
    VARIABLE,
    Run,
    check_shared_memory,
    remove_stale_folders,
    remove_stale_shared_memory,
    shared_memory_problem,
)


def a_run(folder: Path) -> Run:
    return Run(str(folder), str(folder / "shared"), "key", "mobile_sam_triton_0_", 8002)


ROOT = Path(__file__).resolve().parents[4]
SERVICE = f"""
import os, subprocess, sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from utils.triton import health
from utils.triton.run import Run
run = Run.current()
assert Run.current() == run
folder, file = Path(run.folder), Path(run.shared_file)
assert oct(folder.stat().st_mode & 0o777) == "0o700"
print(folder, flush=True)
"""


def run_service(folder: Path, program: str) -> Path:
    """Run a program as the first process of a service, with `folder` as TMPDIR; return its run folder."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MOBILE_SAM_TRITON_")}
    command = [sys.executable, "-c", SERVICE + program]
    ran = subprocess.run(
        command, env={**environment, "TMPDIR": str(folder)}, stdout=subprocess.PIPE, text=True, check=True
    )
    return Path(ran.stdout.splitlines()[0])


def test_folder_is_created_once_inherited_and_removed_at_exit(tmp_path):
    assert run_service(tmp_path, "").parent == tmp_path
    assert not list(tmp_path.iterdir())


def test_shared_file_survives_the_folder_but_not_its_process(tmp_path):
    program = """
import shutil
from utils.triton.health import Health
shutil.rmtree(folder)
health.write_health(file, Health("ready"))
lock = health.RequestsLock(file)
other = "from pathlib import Path; from utils.triton import health; from utils.triton.run import Run\\n"
other += "file = Path(Run.current().shared_file)\\n"
other += "assert health.read_health(file).ready and not health.is_triton_unused(file)"
subprocess.run([sys.executable, "-c", other], check=True, cwd=sys.path[0])
lock.release()
assert health.is_triton_unused(file)
print(file)
""".replace("\\\\", "\\")
    run_service(tmp_path, program)
    # A path in /proc of an exited process.
    gone = Path(f"/proc/{2**22}/fd/3")
    assert health.is_triton_unused(gone)
    assert health.read_health(gone).state == "failing"


def test_restore_folder_recreates_folders_with_private_permissions(tmp_path):
    folder = tmp_path / "run"
    run = a_run(folder)
    assert run.restore_folder()
    assert not run.restore_folder()
    shutil.rmtree(folder / "metrics")
    assert run.restore_folder()
    assert sorted(tmp_path.rglob("*")) == [folder, folder / "metrics"]
    assert {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")} == {0o700}


def test_folder_of_a_running_service_is_locked(tmp_path):
    program = """
import fcntl
try:
    fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("locked")
    raise SystemExit from None
raise AssertionError("not locked")
"""
    run_service(tmp_path, program)


def test_remove_stale_folders_keeps_those_of_running_services(tmp_path, monkeypatch):
    monkeypatch.setattr("utils.triton.run.tempfile.gettempdir", lambda: str(tmp_path))
    dead, locked, running = (tmp_path / f"mobile-sam-triton-{pid}-x" for pid in (4194301, 4194302, os.getpid()))
    # A restarted container, whose first process has the same id as before.
    predecessor = tmp_path / f"mobile-sam-triton-{os.getpid()}-y"
    monkeypatch.setenv(VARIABLE, json.dumps(asdict(a_run(running))))
    for folder in (dead, locked, running, predecessor):
        folder.mkdir()
    held = os.open(locked, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)  # by another container, whose processes are not visible here
    remove_stale_folders()
    os.close(held)
    assert {entry.name for entry in tmp_path.iterdir()} == {locked.name, running.name}


def test_remove_stale_shared_memory_keeps_regions_in_use(tmp_path):
    for name in ("mobile_sam_triton_1_dead", "mobile_sam_triton_1_running", "unrelated"):
        (tmp_path / name).write_bytes(bytes(4096))
    with (tmp_path / "mobile_sam_triton_1_running").open("r+b") as file, mmap.mmap(file.fileno(), 4096):
        remove_stale_shared_memory(tmp_path)
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
    remove_stale_shared_memory(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["mobile_sam_triton_1_theirs"]


def leave_free(monkeypatch, mebibytes):
    monkeypatch.setattr("utils.triton.run.shutil.disk_usage", lambda _: SimpleNamespace(free=mebibytes * 2**20))


def test_too_little_shared_memory_error_names_the_remedy(monkeypatch):
    check_shared_memory()
    leave_free(monkeypatch, 63)
    with pytest.raises(TritonSetupError, match=r"63 MiB free, 256 MiB are needed: .*--shm-size=1g"):
        check_shared_memory()


def test_shared_memory_problem_reports_little_free_space(monkeypatch):
    leave_free(monkeypatch, 32)
    assert shared_memory_problem() == ""
    leave_free(monkeypatch, 31)
    assert shared_memory_problem() == "/dev/shm has 31 MiB free, 32 MiB are needed"
