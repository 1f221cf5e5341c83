"""What the processes of a service share."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from utils import health
from utils.edge.counts import health_metrics
from utils.health import Health, RequestsLock


def test_before_the_watchdog_writes_triton_is_starting(tmp_path):
    found = health.read_health(tmp_path)
    assert found.state == "starting"
    assert not found.ready
    assert not found.takes_requests


def test_what_is_written_is_read(tmp_path):
    health.write_health(tmp_path, Health("failing", "why", {"died": 2}))
    found = health.read_health(tmp_path)
    assert (found.state, found.reason, found.restarts) == ("failing", "why", {"died": 2})
    assert found.written_at == pytest.approx(time.monotonic(), abs=60)


def test_an_old_record_is_no_record(tmp_path, monkeypatch):
    health.write_health(tmp_path, Health("ready"))
    now = time.monotonic()
    monkeypatch.setattr("utils.health.time.monotonic", lambda: now + health.STALE_AFTER + 1)
    assert health.read_health(tmp_path).state == "failing"


def test_the_last_record_stays_true(tmp_path, monkeypatch):
    health.write_health(tmp_path, Health("stopped"))
    now = time.monotonic()
    monkeypatch.setattr("utils.health.time.monotonic", lambda: now + 1000)
    assert health.read_health(tmp_path).state == "stopped"


def test_the_folder_is_made_once_inherited_and_removed_at_the_end(tmp_path):
    program = """
import os, sys
from utils import health
folder = health.run_dir()
assert folder == health.run_dir() and str(folder) == os.environ["MOBILE_SAM_TRITON_RUN_DIR"]
assert oct(folder.stat().st_mode & 0o777) == "0o700"
print(folder)
"""
    environment = {name: value for name, value in os.environ.items() if name != "MOBILE_SAM_TRITON_RUN_DIR"}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**environment, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.startswith(str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_folders_of_killed_services_are_removed_and_of_living_ones_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("utils.health.tempfile.gettempdir", lambda: str(tmp_path))
    dead, elsewhere, living = (tmp_path / f"mobile-sam-triton-{pid}-x" for pid in (4194301, 4194302, os.getpid()))
    # Of a container that was started again, where the first process has the same number each time.
    former = tmp_path / f"mobile-sam-triton-{os.getpid()}-y"
    monkeypatch.setenv("MOBILE_SAM_TRITON_RUN_DIR", str(living))
    for folder in (dead, elsewhere, living, former):
        folder.mkdir()
        (folder / "requests.lock").touch()
    lock = RequestsLock(elsewhere)  # of another container, whose processes cannot be seen from here
    health.remove_stale_run_dirs()
    lock.release()
    assert {entry.name for entry in tmp_path.iterdir()} == {elsewhere.name, living.name}


def test_health_is_told_in_prometheus_words():
    text = health_metrics(Health("ready", restarts={"died": 1, "hung": 2})).decode()
    assert "mobile_sam_ready 1\n" in text
    assert 'mobile_sam_triton_restarts_total{cause="hung"} 2\n' in text
    assert text.endswith("\n")
