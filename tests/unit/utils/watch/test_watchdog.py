"""The watchdog, as the processes it is in life, over a stand-in for Triton."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from benchmarks.service import free_ports
from utils import health
from utils.health import Health, RequestsLock, is_triton_unused, read_health
from utils.versions import CALLS, LOAD_ORDER, REQUIRED_FILES, link, versions
from utils.watch import examination, watchdog
from utils.watch.workers import MIN_STOPPED_CHECKS, Workers

ROOT = Path(__file__).resolve().parents[4]
FAKE = Path(__file__).with_name("fake_triton.py")
PATIENCE = 20
"""Seconds after which a test gives up; none of them depends on how quick things are."""

# The limits of real life are minutes.
PROGRAM = f"""
import os, sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from utils.watch import examination, process, watchdog
watchdog.TICK, watchdog.STOPPED_FOR, watchdog.PAUSES = 0.1, 0.3, (0.0, 0.1)
watchdog.BEYOND_A_REQUEST = 1.0
examination.ASK_AFTER = examination.ASK_ENCODER_AFTER = examination.ASK_AGAIN_AFTER = 0.1
examination.LATE_AFTER, examination.MUTE_AFTER, examination.LONGEST_STEP = 0.3, 0.6, 0.2
process.STOP_LIMIT, process.ENDED_WITHIN = 2, 0.3
watchdog.shared_memory_complaint = lambda: "no room" if Path(os.environ["FAKE_TRITON"], "full").exists() else ""
sys.exit(watchdog.main(sys.argv[1:]))
"""


@dataclass
class Watched:
    """A running watchdog."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def health(self) -> Health:
        return read_health(self.shared)

    @property
    def shared(self) -> Path:
        """The file that the processes of the service share."""
        return self.folder / "shared"

    def starts(self) -> list[int]:
        """Process ids of all Tritons so far."""
        file = self.folder / "starts"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, self.health
            time.sleep(0.02)

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


@pytest.fixture
def settings() -> dict[str, str]:
    """Variables of the service beside the usual; a test may have others."""
    return {}


@pytest.fixture
def watched(tmp_path: Path, settings: dict[str, str]) -> Iterator[Watched]:
    """A watchdog whose Triton is ready."""
    command = tmp_path / "server"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    port, metrics_port = free_ports(2)
    running = subprocess.Popen(
        [
            *(sys.executable, "-c", PROGRAM, command, f"--http-port={port}", f"--metrics-port={metrics_port}"),
            f"--model-repository={tmp_path / 'deployed'}",
        ],
        env={
            **os.environ,
            "FAKE_TRITON": str(tmp_path),
            "MOBILE_SAM_TRITON_RUN_DIR": str(tmp_path / "run"),
            "MOBILE_SAM_TRITON_SHARED_FILE": str(tmp_path / "shared"),
            "MOBILE_SAM_TRITON_METRICS_PORT": str(metrics_port),
            "MOBILE_SAM_TRITON_SHM_PREFIX": f"test_watchdog_{os.getpid()}_",
            "MOBILE_SAM_INFERENCE_TIMEOUT": "0.5",
            **settings,
        },
    )
    dog = Watched(running, tmp_path)
    try:
        dog.until(lambda: dog.health.ready)
        yield dog
    finally:
        family = dog.family() if running.poll() is None else []
        running.kill()
        running.wait()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def test_it_is_ready_when_every_model_has_answered(watched):
    assert watched.health.accepts_requests
    assert len(watched.starts()) == 1


def test_a_triton_that_dies_is_started_again(watched):
    (first,) = watched.starts()
    os.kill(first, signal.SIGKILL)
    watched.until(lambda: watched.health.ready and len(watched.starts()) == 2)
    assert watched.health.restarts == {"died": 1}


def test_a_triton_that_loses_a_process_is_started_again(watched):
    stub = int((watched.folder / "stub").read_text())
    os.kill(stub, signal.SIGKILL)
    watched.until(lambda: watched.health.ready and len(watched.starts()) == 2)
    assert watched.health.restarts == {"died": 1}
    assert not psutil.pid_exists(watched.starts()[0])


@pytest.mark.parametrize("who", ["tritonserver", "a model's process"])
def test_a_triton_that_is_stopped_is_no_longer_ready_and_started_again(watched, who):
    pid = watched.starts()[0] if who == "tritonserver" else int((watched.folder / "stub").read_text())
    os.kill(pid, signal.SIGSTOP)
    watched.until(lambda: not watched.health.ready)
    assert "stopped by a signal" in watched.health.reason
    watched.until(lambda: watched.health.ready and len(watched.starts()) == 2)
    assert watched.health.restarts == {"stopped": 1}


def test_one_that_goes_on_soon_is_left_alone(watched):
    os.kill(watched.starts()[0], signal.SIGSTOP)
    watched.until(lambda: not watched.health.ready)
    os.kill(watched.starts()[0], signal.SIGCONT)
    watched.until(lambda: watched.health.ready)
    assert len(watched.starts()) == 1


@pytest.mark.parametrize(
    ("illness", "cause"),
    [("errors", "failed"), ("silent", "hung"), ("mute", "hung")],
)
def test_a_triton_that_does_not_answer_as_it_should_is_started_again(watched, illness, cause):
    file = watched.folder / illness
    file.touch()
    watched.until(lambda: not watched.health.ready)
    watched.until(lambda: watched.health.restarts)
    file.unlink()
    watched.until(lambda: watched.health.ready)
    assert set(watched.health.restarts) == {cause}


def test_full_shared_memory_is_told_and_requests_are_still_taken(watched):
    full = watched.folder / "full"
    full.touch()
    watched.until(lambda: watched.health.state == "failing")
    assert (watched.health.reason, watched.health.accepts_requests) == ("no room", True)
    full.unlink()
    watched.until(lambda: watched.health.ready)
    assert not watched.health.restarts


def test_a_model_that_gets_on_with_its_work_is_busy_and_one_that_does_not_hangs(watched):
    busy = watched.folder / "busy"
    busy.touch()
    time.sleep(3)  # twice as long as a model may be silent
    assert watched.health.ready
    assert not watched.health.restarts
    busy.rename(watched.folder / "silent")
    watched.until(lambda: watched.health.restarts)
    (watched.folder / "silent").unlink()
    watched.until(lambda: watched.health.ready)
    assert set(watched.health.restarts) == {"hung"}


def test_a_triton_that_will_not_start_is_tried_again_and_again(watched):
    (watched.folder / "refuses").touch()
    os.kill(watched.starts()[0], signal.SIGKILL)
    watched.until(lambda: len(watched.starts()) >= 4)
    assert not watched.health.accepts_requests
    (watched.folder / "refuses").unlink()
    watched.until(lambda: watched.health.ready)


def test_told_to_stop_it_ends_triton_in_its_own_way_and_leaves_nothing(watched):
    family = watched.family()
    assert len(family) == 3  # the inner watchdog, Triton, its child
    assert watched.stop() == 0
    assert (watched.folder / "ended").exists()
    assert watched.health.state == "stopped"
    _, alive = psutil.wait_procs(family, timeout=PATIENCE)
    assert not alive


def test_it_waits_for_those_who_have_requests_in_triton(watched):
    lock = RequestsLock(watched.shared)
    # As BentoML does: to what it started, and to the children of that.
    for process in (watched.process, *psutil.Process(watched.process.pid).children()):
        process.send_signal(signal.SIGTERM)
    watched.until(lambda: watched.health.state == "stopping")
    watched.process.send_signal(signal.SIGTERM)  # again, which changes nothing
    time.sleep(0.3)
    assert not (watched.folder / "ended").exists()
    lock.release()
    assert watched.process.wait(PATIENCE) == 0
    assert (watched.folder / "ended").exists()


def test_a_killed_worker_needs_triton_no_longer(tmp_path):
    program = f"""
import sys, time
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from utils.health import RequestsLock
lock = RequestsLock(Path({str(tmp_path / "shared")!r}))
print("locked", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        assert not is_triton_unused(tmp_path / "shared")
        worker.kill()
    assert is_triton_unused(tmp_path / "shared")


@pytest.mark.parametrize("killed", ["outer", "inner"])
def test_a_killed_watchdog_takes_triton_with_it(watched, killed):
    family = watched.family()
    inner = next(process for process in family if process.ppid() == watched.process.pid)
    (watched.process if killed == "outer" else inner).kill()
    _, alive = psutil.wait_procs(family, timeout=PATIENCE)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def test_a_record_that_is_old_says_nothing_of_now(watched, monkeypatch):
    monkeypatch.setattr(health, "MAX_RECORD_AGE_S", 1.0)
    inner = next(process for process in watched.family() if process.ppid() == watched.process.pid)
    inner.suspend()
    watched.until(lambda: "watchdog does not answer" in watched.health.reason)
    inner.resume()
    watched.until(lambda: watched.health.ready)
    time.sleep(1)
    assert len(watched.starts()) == 1  # the silence was the watchdog's own


def test_readiness_ends_at_once_when_the_inner_watchdog_is_killed(watched):
    inner = next(process for process in watched.family() if process.ppid() == watched.process.pid)
    inner.kill()
    inner.wait(PATIENCE)
    found = watched.health
    # Of a record that is old it says "failing".
    assert (found.state, found.reason) == ("restarting", "its watchdog has ended, and Triton with it")


def test_the_run_folder_is_made_again_where_it_is_removed_and_nothing_else_changes(capfd, watched):
    folder = watched.folder / "run"
    watched.until((folder / "metrics").is_dir)
    folder.rename(watched.folder / "away")  # at once, unlike a removal of one file after the other
    watched.until((folder / "metrics").is_dir)
    assert folder.stat().st_mode & 0o777 == 0o700
    later = watched.health.written_at + 1
    watched.until(lambda: watched.health.written_at > later)
    assert watched.health.ready
    assert len(watched.starts()) == 1
    told = [line for line in capfd.readouterr().err.splitlines() if f"{folder} was removed" in line]
    assert len(told) == 1


@pytest.fixture
def worker() -> Iterator[psutil.Process]:
    """A process with the name of an API worker, below the same parent as the watchdog."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "http_api_server"]) as running:
        yield psutil.Process(running.pid)
        running.kill()


def test_an_api_worker_that_stays_stopped_is_killed(watched, worker):
    worker.suspend()
    watched.until(lambda: worker.status() == psutil.STATUS_ZOMBIE)
    assert watched.health.ready


def test_an_api_worker_that_goes_on_soon_is_left_alone(watched, worker, monkeypatch):
    workers = Workers(os.getpid())
    for _ in range(2):
        worker.suspend()
        for _ in range(MIN_STOPPED_CHECKS - 1):
            workers.kill_stopped()
        worker.resume()
        workers.kill_stopped()
    assert worker.is_running()


def test_limits_fit_into_each_other():
    assert watchdog.DRAIN_LIMIT + 10 < 40  # seconds that a stop may take
    assert examination.MUTE_AFTER + watchdog.TICK < 60


EXPLICIT = pytest.mark.parametrize("settings", [{"MOBILE_SAM_MODEL_CONTROL_MODE": "explicit"}], ids=["explicit"])


def test_a_model_that_is_unloaded_is_told_and_no_fault(watched):
    (watched.folder / "unloaded").touch()
    watched.until(lambda: watched.health.state == "failing" and "mobile_sam is not loaded" in watched.health.reason)
    watched.until(lambda: all(f"{model} is not loaded" in watched.health.reason for model in LOAD_ORDER))
    (watched.folder / "unloaded").unlink()
    watched.until(lambda: watched.health.ready)
    assert watched.health.restarts == {}


@EXPLICIT
def test_where_models_change_a_process_that_triton_ends_is_no_fault_and_its_successor_is_watched(watched):
    first = (watched.folder / "stub").read_text()
    (watched.folder / "swap").touch()
    watched.until(lambda: not (watched.folder / "swap").exists())
    second = (watched.folder / "stub").read_text()
    assert second != first
    # Written down anew with every look: some later than the swap have been taken.
    later = watched.health.written_at + 1
    watched.until(lambda: watched.health.written_at > later)
    assert watched.health.ready
    assert watched.health.restarts == {}
    os.kill(int(second), signal.SIGKILL)
    watched.until(lambda: watched.health.ready and len(watched.starts()) == 2)
    assert watched.health.restarts == {"died": 1}


@pytest.fixture
def polled(tmp_path: Path, settings: dict[str, str]) -> Path:
    """A model repository with version 1, which a Triton that polls reads by links."""
    repository = tmp_path / "repository"
    for model in LOAD_ORDER:
        (repository / model / "1").mkdir(parents=True)
        for file in REQUIRED_FILES[model]:
            (repository / model / "1" / file).touch()
        (tmp_path / "deployed" / model).mkdir(parents=True)
        link(repository, tmp_path / "deployed", model, 1)
    settings |= {"MOBILE_SAM_MODEL_CONTROL_MODE": "poll", "MOBILE_SAM_MODEL_REPOSITORY": str(repository)}
    (tmp_path / "loaded").write_text(" ".join(f"{model}/1" for model in LOAD_ORDER))
    return repository


def test_where_triton_polls_it_sees_a_version_first_of_the_models_that_others_ask(polled, watched):
    deployed = watched.folder / "deployed"

    def seen() -> list[str]:
        return [f"{model}/{version}" for model in LOAD_ORDER for version in versions(deployed, model)]

    first, asked = [f"{model}/1" for model in LOAD_ORDER], {f"{model}/2" for model in CALLS["mobile_sam"]}
    for model in LOAD_ORDER:
        shutil.copytree(polled / model / "1", polled / model / "2")
    watched.until(lambda: set(seen()) == {*first, *asked})
    (watched.folder / "loaded").write_text(" ".join([*first, *asked]))
    watched.until(lambda: len(seen()) == 2 * len(LOAD_ORDER))
    second = [f"{model}/2" for model in LOAD_ORDER]
    for model in LOAD_ORDER:
        shutil.rmtree(polled / model / "1")
    linked = [deployed / name for name in first]
    (watched.folder / "loaded").write_text(" ".join([*first, *second]))
    watched.until(lambda: [path.is_symlink() for path in linked] == [name.split("/")[0] not in CALLS for name in first])
    (watched.folder / "loaded").write_text(" ".join(second))
    watched.until(lambda: not any(path.is_symlink() for path in linked))
    assert seen() == second


def test_a_triton_is_started_again_when_model_files_were_replaced_while_it_loaded_them(polled, watched):
    silent, file = watched.folder / "silent", polled / "mobile_sam_encoder" / "1" / "model.onnx"
    silent.touch()
    os.kill(watched.starts()[0], signal.SIGKILL)
    watched.until(lambda: len(watched.starts()) == 2)
    file.rename(polled / "before")
    file.touch()
    silent.unlink()
    watched.until(lambda: watched.health.ready and len(watched.starts()) == 3)
    assert watched.health.restarts == {"died": 1, "failed": 1}
    (polled / "before").replace(file)  # a Triton that has loaded them keeps what it has
    later = watched.health.written_at + 1
    watched.until(lambda: watched.health.written_at > later)
    assert watched.health.restarts == {"died": 1, "failed": 1}


@EXPLICIT
def test_a_version_that_was_hidden_is_shown_to_the_next_triton_once_it_is_whole(polled, settings, watched):
    file = polled / "mobile_sam" / "1" / "weights.json"
    (watched.folder / "refuses").touch()
    file.rename(polled / "away")
    os.kill(watched.starts()[0], signal.SIGKILL)
    watched.until(lambda: len(watched.starts()) >= 3)
    assert versions(watched.folder / "deployed", "mobile_sam") == []
    (polled / "away").rename(file)
    (watched.folder / "refuses").unlink()
    watched.until(lambda: watched.health.ready)
    assert [versions(watched.folder / "deployed", model) for model in LOAD_ORDER] == [[1]] * len(LOAD_ORDER)


@EXPLICIT
def test_a_triton_that_is_started_again_meets_only_versions_that_are_whole(polled, settings, watched):
    deployed = watched.folder / "deployed"
    for model in LOAD_ORDER:
        shutil.copytree(polled / model / "1", polled / model / "2")
        link(polled, deployed, model, 2)
    (polled / "mobile_sam_decoder" / "1" / "model.onnx").unlink()
    assert versions(deployed, "mobile_sam") == [1, 2]
    os.kill(watched.starts()[0], signal.SIGKILL)
    watched.until(lambda: watched.health.ready and len(watched.starts()) == 2)
    assert [versions(deployed, model) for model in LOAD_ORDER] == [[2]] * len(LOAD_ORDER)
