"""Health records, reported faults and the requests lock."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness import wait_until
from utils.triton import health
from utils.triton.health import Health, is_triton_unused, lock_requests
from utils.triton.metrics import health_metrics

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Health record of a service."""
    return tmp_path / "health.json"


def run(program: str, *arguments: object) -> "subprocess.Popen[str]":
    """Run a program with the functions of this module in another process."""
    imports = (
        "import sys; from pathlib import Path; from utils.triton.health import *\nfile ="
        " Path(sys.argv[1])\n"
    )
    command = [sys.executable, "-c", imports + program, *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_health_is_starting_before_the_first_record_and_unknown_without_the_folder(file):
    assert (health.read_health(file).state, health.read_health(file).accepts_requests) == (
        "starting",
        False,
    )
    found = health.read_health(file.parent / "removed" / file.name)
    assert (found.state, found.accepts_requests) == ("failing", True)


@pytest.mark.parametrize(("state", "later"), [("ready", "failing"), ("stopped", "stopped")])
def test_a_stale_record_reads_as_failing_unless_triton_has_stopped(file, monkeypatch, state, later):
    health.write_health(file, Health(state))
    now = time.monotonic()
    monkeypatch.setattr(
        "utils.triton.health.time.monotonic", lambda: now + health.MAX_RECORD_AGE_S + 1
    )
    monkeypatch.setattr(health, "shared_memory_problem", lambda: "/dev/shm is full")
    found = health.read_health(file)
    assert (found.state, "/dev/shm is full" in found.reason) == (later, later == "failing")


def test_a_record_of_an_exited_watchdog_reads_as_restarting(file):
    for state, later in (("ready", "restarting"), ("stopped", "stopped")):
        run(
            'write_health(file, Health(sys.argv[2], restarts={"died": 2}))', file, state
        ).communicate()
        found = health.read_health(file)
        assert (found.state, found.accepts_requests, found.restarts) == (later, False, {"died": 2})


def test_concurrent_reads_never_see_a_partial_record(file, monkeypatch):
    # The writer may have to wait for a core.
    monkeypatch.setattr(health, "MAX_RECORD_AGE_S", 600)
    program = (
        'for number in range(10**6): write_health(file, Health("ready", "x" * number, {"died": 2}))'
    )
    with run(program, file) as writer:
        wait_until(lambda: health.read_health(file).state == "ready")
        found = [health.read_health(file) for _ in range(3000)]
        writer.kill()
    assert {(each.state, each.restarts["died"]) for each in found} == {("ready", 2)}
    assert max(len(each.reason) for each in found) <= health.MAX_REASON_CHARACTERS


def test_a_fault_is_reported_once(file):
    assert not health.consume_fault(file)
    health.report_fault(file)
    health.report_fault(file)
    assert health.consume_fault(file)
    assert not health.consume_fault(file)
    health.report_fault(file.parent / "removed" / file.name)


def test_a_worker_holds_its_lock_until_it_releases_it_or_is_killed(file):
    lock = lock_requests(file)
    assert not is_triton_unused(file)
    lock.close()
    assert is_triton_unused(file)
    with run(
        'lock = lock_requests(file); print("locked", flush=True); sys.stdin.read()', file
    ) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        assert not is_triton_unused(file)
        worker.kill()
    assert is_triton_unused(file)
    assert is_triton_unused(file.parent / "removed" / file.name)


def test_health_metrics_are_prometheus_text():
    lines = health_metrics(Health("ready", restarts={"hung": 2})).decode().splitlines(keepends=True)
    assert "mobile_sam_ready 1\n" in lines
    # `increase()` misses the first step of a counter that appears at 1.
    assert [line.split()[-1] for line in lines if "{cause=" in line] == ["0", "0", "2", "0"]
