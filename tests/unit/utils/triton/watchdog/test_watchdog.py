"""What the watchdog does about faults of Triton, its own and those of the service."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest

from harness import wait_until
from tests.unit.utils.triton.conftest import add_version, remove_version
from tests.unit.utils.triton.watchdog.conftest import MANAGER, PROGRAM, TIMEOUT_S, start
from utils.triton import health
from utils.triton.health import lock_requests
from utils.triton.versions import LOAD_ORDER, Deployment, versions
from utils.triton.watchdog import Timings
from utils.triton.watchdog.process import MIN_STOPPED_CHECKS, Workers
from utils.triton.watchdog.watchdog import Watchdog


def test_version_is_published_and_an_old_one_on_other_addresses_is_warned_of_once(watched):
    # A busy Triton is asked again.
    watched.wait_until(lambda: watched.health.version == "2.51.0")
    os.kill(watched.starts()[0], signal.SIGKILL)
    watched.wait_for_restart(watched.starts()[0])
    lines = watched.log.splitlines()
    assert sum(" is ready after " in line for line in lines) == 2
    assert any("Triton 2.51.0 is ready after " in line for line in lines)
    assert sum("[WARNING]" in line and "listens on grpc 0.0.0.0" in line for line in lines) == 1


@pytest.mark.slow
def test_triton_is_restarted_once_after_a_process_dies_or_is_stopped_or_a_fault_is_reported(
    watched,
):
    for signum, cause in ((signal.SIGKILL, "died"), (signal.SIGSTOP, "stopped")):
        for number, process in enumerate((lambda: watched.starts()[-1], watched.stub), 1):
            last, pid = watched.starts()[-1], process()
            os.kill(pid, signum)
            watched.wait_for_restart(last)
            assert watched.health.restarts[cause] == number
            reason = rf"restarting Triton: process {pid} \(.+\) was stopped by a signal"
            assert cause == "died" or re.search(reason, watched.log)
            assert not psutil.pid_exists(last)
    last = watched.starts()[-1]
    health.report_fault(watched.health_file)
    watched.wait_for_restart(last)
    watched.wait_for_records()
    assert watched.health.restarts == {"died": 3, "stopped": 2}


def test_a_start_that_waits_for_the_end_of_a_models_process_is_repeated(tmp_path):
    (tmp_path / "waits").touch()
    watched = start(tmp_path, {})
    watched.wait_until(lambda: watched.health.ready)
    assert len(watched.starts()) == 2
    assert watched.health.restarts == {"hung": 1}
    assert (
        "restarting Triton: Triton took a model's process for dead while it loaded the model"
        in watched.log
    )
    watched.process.terminate()
    assert watched.process.wait(TIMEOUT_S) == 0


@pytest.mark.parametrize("settings", [{"FAKE_FORK": ""}], ids=["fork"])
@pytest.mark.parametrize(
    "program", [PROGRAM.replace("grace_s=0.3", "grace_s=30.0")], ids=["long grace"]
)
def test_triton_is_not_restarted_for_a_brief_stop_or_the_end_of_a_models_fork(watched):
    os.kill(watched.starts()[0], signal.SIGSTOP)
    watched.wait_until(lambda: not watched.health.ready)
    os.kill(watched.starts()[0], signal.SIGCONT)
    watched.wait_until(lambda: watched.health.ready)
    os.kill(int((watched.folder / "fork").read_text()), signal.SIGKILL)
    watched.wait_for_records()
    assert watched.health.ready
    assert not watched.health.restarts


@pytest.mark.slow
@pytest.mark.parametrize("program", [PROGRAM.replace("_s=300.0", "_s=6.0")], ids=["short timeouts"])
def test_a_failing_or_hung_triton_is_restarted(watched):
    for fault, text, cause in (
        ("errors", "", "failed"),
        ("errors", DEAD, "died"),
        ("problems", "", "failed"),
        ("silent", "", "hung"),
        ("mute", "", "hung"),
    ):
        before = watched.health.restarts
        (watched.folder / fault).write_text(text)
        watched.wait_until(
            lambda before=before: not watched.health.ready and watched.health.restarts != before
        )
        (watched.folder / fault).unlink()
        watched.wait_until(lambda: watched.health.ready)
        assert {
            each for each, count in watched.health.restarts.items() if count > before.get(each, 0)
        } == {cause}


@pytest.mark.parametrize(
    ("fault", "reason"), [("full", "no room"), ("unloaded", "mobile_sam_encoder, mobile_sam_")]
)
def test_little_memory_and_unloaded_models_are_reported_without_a_restart(watched, fault, reason):
    (watched.folder / fault).touch()
    watched.wait_until(lambda: watched.health.state == "failing")
    assert watched.health.reason.startswith(reason)
    assert watched.health.accepts_requests
    watched.wait_for_records()
    (watched.folder / fault).unlink()
    watched.wait_until(lambda: watched.health.ready)
    assert not watched.health.restarts


@pytest.mark.parametrize(
    "program", [PROGRAM.replace("(0.0, 0.1)", "(0.0, 3600.0)")], ids=["long delays"]
)
def test_only_starts_without_a_ready_triton_in_between_are_delayed(watched):
    for _ in range(3):
        last = watched.starts()[-1]
        os.kill(last, signal.SIGKILL)
        watched.wait_for_restart(last)
    assert watched.health.restarts == {"died": 3}


LOAD_ERROR = """\
E1122 model_lifecycle.cc:642] "failed to load 'mul' version 1: Internal: no number\\n\\nAt:\\n  1/model.py"
error: creating server: Internal - failed to load all models
"""
DEAD = "Stub process 'mul_0_0' is not healthy."
BAD_CONFIG = "E1 \"Poll failed for model directory 'mul': no text proto\"\n"
UNHEALTHY = LOAD_ERROR.replace("no number", DEAD)
SAME = (
    "mobile_sam_encoder returned the same embedding for two different images "
    "(decoder another, encoder an engine): set MOBILE_SAM_ENGINE to openvino or onnxruntime"
)


def test_a_later_start_that_fails_is_retried(watched):
    (watched.folder / "refuses").write_text(LOAD_ERROR)
    (watched.folder / "constant").touch()
    os.kill(watched.starts()[0], signal.SIGKILL)
    watched.wait_until(lambda: len(watched.starts()) >= 4)
    assert not watched.health.accepts_requests
    watched.wait_until(
        lambda: watched.health.reason == "model mul cannot be loaded: Internal: no number"
    )
    (watched.folder / "refuses").unlink()
    watched.wait_until(lambda: watched.health.reason == SAME)
    assert watched.health.state == "restarting"
    (watched.folder / "constant").unlink()
    watched.wait_until(lambda: watched.health.ready)


@pytest.mark.parametrize(
    ("fault", "text", "starts", "reason"),
    [
        pytest.param(
            "refuses", LOAD_ERROR, 1, "model mul cannot be loaded: Internal: no number", id="model"
        ),
        pytest.param(
            "refuses", BAD_CONFIG, 1, "model mul cannot be loaded: no text proto", id="config"
        ),
        pytest.param("refuses", "error: no such port\n", 1, "no such port", id="server"),
        pytest.param(
            "refuses", UNHEALTHY, 2, f"model mul cannot be loaded: Internal: {DEAD}", id="process"
        ),
        pytest.param("constant", "", 1, SAME, id="engine"),
    ],
)
def test_first_start_that_fails_stops_the_service_with_the_reason(
    tmp_path, fault, text, starts, reason
):
    (tmp_path / fault).write_text(text)
    watched = start(tmp_path, {}, MANAGER)
    assert watched.process.wait(TIMEOUT_S) == 7, watched.log
    assert len(watched.starts()) == starts
    assert (watched.health.state, watched.health.reason) == ("failed", reason)
    assert text.strip() in watched.log


def test_stop_waits_for_workers_with_requests_and_leaves_no_process(watched):
    lock, descendants = lock_requests(watched.health_file), watched.descendants()
    assert len(descendants) == 2  # Triton, stub
    watched.process.terminate()
    watched.wait_until(lambda: watched.health.state == "stopping")
    watched.process.terminate()  # a second signal changes nothing
    watched.wait_for_records()
    assert not (watched.folder / "ended").exists()
    lock.close()
    assert watched.process.wait(TIMEOUT_S) == 0
    assert (watched.folder / "ended").exists()
    assert watched.health.state == "stopped"
    assert re.findall("stopping.*|Triton has.*", watched.log) == ["stopping", "Triton has stopped"]
    _, alive = psutil.wait_procs(descendants, timeout=TIMEOUT_S)
    assert not alive


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [PROGRAM.replace("stop_timeout_s=60.0", "stop_timeout_s=2.0")],
    ids=["short time to stop"],
)
def test_triton_that_does_not_stop_is_killed_and_the_log_says_so(watched):
    lock, descendants = lock_requests(watched.health_file), watched.descendants()
    watched.process.terminate()
    watched.wait_until(lambda: watched.health.state == "stopping")
    os.kill(watched.starts()[0], signal.SIGSTOP)
    lock.close()
    assert watched.process.wait(TIMEOUT_S) == 0
    assert re.findall("Triton (?:did|has).*", watched.log) == [
        "Triton did not stop within 2 s, and is killed",
        "Triton has stopped",
    ]
    _, alive = psutil.wait_procs(descendants, timeout=TIMEOUT_S)
    assert not alive


def test_triton_and_readiness_end_with_a_killed_watchdog(watched):
    descendants = watched.descendants()
    watched.process.kill()
    watched.process.wait()
    _, alive = psutil.wait_procs(descendants, timeout=TIMEOUT_S)
    assert not alive
    assert watched.health.state == "restarting"
    assert watched.health.reason == "the watchdog has exited, and Triton with it"


def test_health_is_unknown_while_the_watchdog_is_suspended(watched, monkeypatch):
    monkeypatch.setattr(health, "MAX_RECORD_AGE_S", 1.0)
    watched.process.send_signal(signal.SIGSTOP)
    watched.wait_until(lambda: "watchdog does not respond" in watched.health.reason)
    watched.process.send_signal(signal.SIGCONT)
    watched.wait_until(lambda: watched.health.ready)
    watched.wait_for_records()
    assert len(watched.starts()) == 1  # only the watchdog was silent


def test_a_removed_run_folder_is_recreated_without_a_restart(watched):
    folder = watched.health_file.parent
    folder.rename(watched.folder / "away")  # atomic, unlike a recursive removal
    watched.wait_until((folder / "metrics").is_dir)
    watched.wait_until(lambda: watched.health.ready)
    watched.wait_for_records()
    assert len(watched.starts()) == 1
    assert watched.log.count(f"{folder} was removed while the service runs; recreated it") == 1


@pytest.fixture
def worker() -> Iterator[psutil.Process]:
    """A sibling process of the watchdog with the command line of an API worker."""
    with subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)", "http_api_server"]
    ) as running:
        yield psutil.Process(running.pid)
        running.kill()


def test_a_stopped_api_worker_is_killed(watched, worker):
    worker.suspend()
    watched.wait_until(lambda: worker.status() == psutil.STATUS_ZOMBIE)


def test_a_briefly_stopped_api_worker_is_not_killed(worker):
    workers = Workers(os.getpid())
    for _ in range(2):
        worker.suspend()
        wait_until(lambda: worker.status() == psutil.STATUS_STOPPED)
        for _ in range(MIN_STOPPED_CHECKS - 1):
            workers.kill_stopped()
        worker.resume()
        wait_until(lambda: worker.status() != psutil.STATUS_STOPPED)
        workers.kill_stopped()
    assert worker.status() != psutil.STATUS_ZOMBIE


@pytest.fixture
def linked(deployment: Deployment, settings: dict[str, str]) -> Deployment:
    """A model repository that Triton reads through links, and whose models can be loaded."""
    settings |= {
        "MOBILE_SAM_MODEL_CONTROL_MODE": "explicit",
        "source": str(deployment.repository),
    }
    return deployment


@pytest.mark.usefixtures("linked")
def test_explicit_mode_accepts_replaced_model_processes(watched):
    first = watched.stub()
    (watched.folder / "swap").touch()
    watched.wait_until(lambda: not (watched.folder / "swap").exists())
    assert watched.stub() != first
    watched.wait_for_records()
    watched.wait_until(lambda: watched.health.ready)
    assert watched.health.restarts == {}
    os.kill(watched.stub(), signal.SIGKILL)
    watched.wait_for_restart(watched.starts()[0])
    assert watched.health.restarts == {"died": 1}


def test_a_restarted_triton_reads_what_the_service_started_with(linked, watched):
    remove_version(linked.repository, 1)
    add_version(linked.repository, 2)
    os.kill(watched.starts()[0], signal.SIGKILL)
    watched.wait_for_restart(watched.starts()[0])
    assert [versions(linked.folder, model) for model in LOAD_ORDER] == [[1]] * len(LOAD_ORDER)
    assert watched.health.restarts == {"died": 1}


@pytest.mark.parametrize("program", [MANAGER])
def test_a_restart_with_changed_weights_ends_the_service_with_an_error(linked, watched):
    file = linked.folder / "mobile_sam_encoder" / "1" / "model.onnx"
    file.write_text("another network")
    os.kill(watched.starts()[0], signal.SIGKILL)
    assert watched.process.wait(TIMEOUT_S) == 7, watched.log
    assert len(watched.starts()) == 1
    assert watched.health.state == "failed"
    reason = (
        f"the weights that this service started with were changed or removed: {file.resolve()} has"
        " changed"
    )
    assert watched.health.reason == f"{reason}; start it again"


def test_a_first_start_with_changed_weights_ends_the_service_with_an_error(
    linked, tmp_path, settings
):
    file = linked.folder / "mobile_sam" / "1" / "weights.json"
    file.unlink()
    watched = start(tmp_path, settings, MANAGER)
    assert watched.process.wait(TIMEOUT_S) == 7, watched.log
    assert watched.starts() == []
    assert f"{file.parent.resolve() / file.name} was removed" in watched.health.reason


@pytest.fixture
def polled(deployment: Deployment, settings: dict[str, str]) -> Path:
    """A version that lacks files, in a repository that Triton polls itself."""
    settings["MOBILE_SAM_MODEL_CONTROL_MODE"] = "poll"
    version = deployment.folder / "mobile_sam" / "2"
    version.mkdir()
    return version


def test_poll_mode_leaves_the_repository_to_triton(polled, watched):
    assert watched.health.ready
    assert polled.is_dir()


def test_states_that_change_again_and_again_are_counted(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("utils.triton.watchdog.process.LOG._windows", {})
    caplog.set_level("INFO")
    run = Mock(health_file=tmp_path / "health", source="", timeout_s=1.0)
    command = ["tritonserver", "--http-port=1", "--model-control-mode=none"]
    watchdog = Watchdog(command, run, os.getpid(), Timings())
    for number in range(10):
        watchdog._publish("failing", f"reason {number}")
        watchdog._publish("ready")
    assert health.read_health(run.health_file).ready
    lines = [record.getMessage() for record in caplog.records]
    assert (len(lines), lines[0]) == (5, "Triton is failing: reason 0")
    watchdog._publish("stopped")
    assert caplog.records[-1].getMessage().startswith("states of Triton: 15 more in")
