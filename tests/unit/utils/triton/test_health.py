"""Health records, the requests lock and the run folder."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.waiting import wait_until
from utils.observability.metrics import health_metrics
from utils.triton import health
from utils.triton.health import Health


@pytest.fixture
def shared(tmp_path):
    """Shared file of a service."""
    return tmp_path / "shared"


ROOT = Path(__file__).resolve().parents[4]


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


@pytest.mark.parametrize(("state", "later"), [("ready", "failing"), ("stopped", "stopped")])
def test_a_stale_record_reads_as_failing_unless_triton_has_stopped(shared, monkeypatch, state, later):
    health.write_health(shared, Health(state))
    now = time.monotonic()
    monkeypatch.setattr("utils.triton.health.time.monotonic", lambda: now + health.MAX_RECORD_AGE_S + 1)
    assert health.read_health(shared).state == later


def test_a_record_of_an_exited_watchdog_reads_as_restarting(shared):
    program = "import sys; from pathlib import Path; from utils.triton.health import Health, write_health\n"
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
from utils.triton.health import Health, write_health
number = 0
while True:
    number += 1
    write_health(Path(sys.argv[1]), Health("ready", f"{number} " * (1 + number % 200)))
"""
    with subprocess.Popen([sys.executable, "-c", program, shared], cwd=ROOT) as writer:
        while health.read_health(shared).state == "starting":
            assert writer.poll() is None
        found = [health.read_health(shared) for _ in range(5000)]
        wait_until(lambda: health.read_health(shared).reason != found[0].reason)
        writer.kill()
    assert {each.state for each in found} == {"ready"}
    assert all(len(set(each.reason.split())) == 1 for each in found)


def test_health_metrics_are_prometheus_text():
    text = health_metrics(Health("ready", restarts={"died": 1, "hung": 2})).decode()
    assert "mobile_sam_ready 1\n" in text
    assert 'mobile_sam_triton_restarts_total{cause="hung"} 2\n' in text
    assert text.endswith("\n")
