"""Health records, the requests lock and the run folder."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from utils import health
from utils.edge.counts import health_metrics
from utils.health import Health


@pytest.fixture
def shared(tmp_path):
    """Shared file of a service."""
    return tmp_path / "shared"


def test_health_is_starting_before_the_first_record(shared):
    found = health.read_health(shared)
    assert found.state == "starting"
    assert not found.ready
    assert not found.accepts_requests


def test_written_health_is_read_back(shared):
    health.write_health(shared, Health("failing", "why", {"died": 2}))
    found = health.read_health(shared)
    assert (found.state, found.reason, found.restarts) == ("failing", "why", {"died": 2})
    assert found.written_at == pytest.approx(time.monotonic(), abs=60)


def test_a_stale_record_reads_as_failing(shared, monkeypatch):
    health.write_health(shared, Health("ready"))
    now = time.monotonic()
    monkeypatch.setattr("utils.health.time.monotonic", lambda: now + health.MAX_RECORD_AGE_S + 1)
    assert health.read_health(shared).state == "failing"


def test_a_stopped_record_never_becomes_stale(shared, monkeypatch):
    health.write_health(shared, Health("stopped"))
    now = time.monotonic()
    monkeypatch.setattr("utils.health.time.monotonic", lambda: now + 1000)
    assert health.read_health(shared).state == "stopped"


def test_a_record_of_an_exited_watchdog_reads_as_restarting(shared):
    program = "import sys; from pathlib import Path; from utils.health import Health, write_health\n"
    program += 'write_health(Path(sys.argv[1]), Health(sys.argv[2], restarts={"died": 2}))'
    subprocess.run([sys.executable, "-c", program, shared, "ready"], cwd=ROOT, check=True)
    found = health.read_health(shared)
    assert (found.state, found.accepts_requests, found.restarts) == ("restarting", False, {"died": 2})
    subprocess.run([sys.executable, "-c", program, shared, "stopped"], cwd=ROOT, check=True)
    assert health.read_health(shared).state == "stopped"


def test_a_corrupt_record_reads_as_failing(shared):
    health.write_health(shared, Health("ready", "a reason"))
    valid = shared.read_bytes()
    offsets = [offset for offset, byte in enumerate(valid) if byte]
    assert len(offsets) > 50
    for offset in offsets:
        shared.write_bytes(valid[:offset] + bytes([valid[offset] ^ 1]) + valid[offset + 1 :])
        assert health.read_health(shared).state == "failing"


def test_the_previous_record_is_read_if_the_newest_is_torn(shared):
    for number in range(4):
        health.write_health(shared, Health("ready", f"record {number}"))
    valid = shared.read_bytes()
    newest = valid.index(b"record 3")
    shared.write_bytes(valid[:newest] + b"torn" + valid[newest + 4 :])
    assert health.read_health(shared).reason == "record 2"


def test_a_long_reason_is_truncated(shared):
    for _ in range(2):
        health.write_health(shared, Health("failing", "\N{SLICE OF PIZZA}" * 100_000))
    assert health.read_health(shared).reason == "\N{SLICE OF PIZZA}" * health.MAX_REASON_CHARACTERS


def test_concurrent_reads_never_see_a_partial_record(shared):
    program = """
import sys
from pathlib import Path
from utils.health import Health, write_health
number = 0
while True:
    number += 1
    write_health(Path(sys.argv[1]), Health("ready", f"{number} " * (1 + number % 200)))
"""
    with subprocess.Popen([sys.executable, "-c", program, shared], cwd=ROOT) as writer:
        while health.read_health(shared).state == "starting":
            assert writer.poll() is None
        found = [health.read_health(shared) for _ in range(5000)]
        writer.kill()
    assert {each.state for each in found} == {"ready"}
    assert all(len(set(each.reason.split())) == 1 for each in found)
    assert len({each.reason for each in found}) > 1


ROOT = Path(__file__).resolve().parents[3]
SERVICE = f"""
import os, subprocess, sys
sys.path.insert(0, {str(ROOT)!r})
from utils import health
folder, file = health.run_dir(), health.shared_file()
assert (folder, file) == (health.run_dir(), health.shared_file())
assert str(folder) == os.environ["MOBILE_SAM_TRITON_RUN_DIR"]
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


def test_run_dir_is_created_once_inherited_and_removed_at_exit(tmp_path):
    assert run_service(tmp_path, "").parent == tmp_path
    assert not list(tmp_path.iterdir())


def test_shared_file_survives_the_run_dir_but_not_its_process(tmp_path):
    program = """
import shutil
from utils.health import Health
shutil.rmtree(folder)
health.write_health(file, Health("ready"))
lock = health.RequestsLock(file)
other = "from utils import health; file = health.shared_file()\\n"
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


def test_restore_run_dir_recreates_folders_with_private_permissions(tmp_path):
    folder = tmp_path / "run"
    assert health.restore_run_dir(folder)
    assert not health.restore_run_dir(folder)
    shutil.rmtree(folder / "metrics")
    assert health.restore_run_dir(folder)
    assert sorted(tmp_path.rglob("*")) == [folder, folder / "metrics"]
    assert {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")} == {0o700}


def test_run_dir_of_a_running_service_is_locked(tmp_path, monkeypatch):
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


def test_remove_stale_run_dirs_keeps_those_of_running_services(tmp_path, monkeypatch):
    monkeypatch.setattr("utils.health.tempfile.gettempdir", lambda: str(tmp_path))
    dead, locked, running = (tmp_path / f"mobile-sam-triton-{pid}-x" for pid in (4194301, 4194302, os.getpid()))
    # A restarted container, whose first process has the same id as before.
    predecessor = tmp_path / f"mobile-sam-triton-{os.getpid()}-y"
    monkeypatch.setenv("MOBILE_SAM_TRITON_RUN_DIR", str(running))
    for folder in (dead, locked, running, predecessor):
        folder.mkdir()
    held = os.open(locked, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)  # by another container, whose processes are not visible here
    health.remove_stale_run_dirs()
    os.close(held)
    assert {entry.name for entry in tmp_path.iterdir()} == {locked.name, running.name}


def test_health_metrics_are_prometheus_text():
    text = health_metrics(Health("ready", restarts={"died": 1, "hung": 2})).decode()
    assert "mobile_sam_ready 1\n" in text
    assert 'mobile_sam_triton_restarts_total{cause="hung"} 2\n' in text
    assert text.endswith("\n")
