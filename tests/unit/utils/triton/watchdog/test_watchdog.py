"""The real watchdog processes with a fake Triton."""

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import pytest

from benchmarks.service import free_ports
from tests.unit.utils.triton.conftest import add_version, remove_version
from utils.triton import health
from utils.triton.health import Health, RequestsLock, is_triton_unused, read_health
from utils.triton.run import VARIABLE, Run
from utils.triton.versions import CALLS, LOAD_ORDER, link, versions
from utils.triton.watchdog import Timings
from utils.triton.watchdog.workers import MIN_STOPPED_CHECKS, Workers

ROOT = Path(__file__).resolve().parents[5]
FAKE = Path(__file__).with_name("fake_triton.py")
TIMEOUT_S = 60
"""Time until a test fails; no test depends on speed."""

# The production timeouts are minutes.
TIMINGS = Timings(
    tick_s=0.1,
    stopped_grace_s=0.3,
    hang_margin_s=30.0,
    restart_delays_s=(0.0, 0.1),
    reap_timeout_s=0.3,
    stop_timeout_s=2.0,
    idle_before_probe_s=0.1,
    encoder_idle_before_probe_s=0.1,
    retry_interval_s=0.1,
    late_after_s=0.3,
    metrics_timeout_s=0.6,
    max_clock_step_s=0.2,
)
PROGRAM = f"""
import os, sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from utils.triton.watchdog import Timings, watchdog
watchdog.shared_memory_problem = lambda: "no room" if Path(os.environ["FAKE_TRITON"], "full").exists() else ""
sys.exit(watchdog.main(sys.argv[1:], {TIMINGS}))
"""


MANAGER = f"""
import signal, subprocess, sys
watchdog = subprocess.Popen([sys.executable, "-c", {PROGRAM!r}, *sys.argv[1:]])
signal.signal(signal.SIGTERM, lambda *_: watchdog.terminate())
sys.exit(7 if watchdog.wait() == 0 else 1)
"""
"""Stand-in for BentoML's process manager; ends with status 7 after it was asked to stop."""
LOAD_ERROR = """\
E1122 model_lifecycle.cc:642] "failed to load 'mul' version 1: Internal: no number\\n\\nAt:\\n  1/model.py"
error: creating server: Internal - failed to load all models
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
        """Shared file of the service."""
        return self.folder / "shared"

    def starts(self) -> list[int]:
        """Return the process ids of all Triton runs so far."""
        file = self.folder / "starts"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def wait_until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, self.health
            time.sleep(0.02)

    def descendants(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def inner(self) -> psutil.Process:
        """Return the inner watchdog."""
        (inner,) = psutil.Process(self.process.pid).children()
        return inner

    def wait_for_records(self) -> None:
        """Wait until the watchdog has written its health for a second."""
        later = self.health.written_at + 1
        self.wait_until(lambda: self.health.written_at > later)


@pytest.fixture
def settings() -> dict[str, str]:
    """Extra environment variables of the service; tests may override this."""
    return {}


def start(folder: Path, settings: dict[str, str], program: str = PROGRAM, flags: Sequence[str] = ()) -> Watched:
    """Start a watchdog.

    Args:
        folder: folder of the fake Triton.
        settings: environment variables of the service.
        program: program that starts the watchdog.
        flags: further flags of Triton.
    """
    command = folder / "server"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    port, metrics_port = free_ports(2)
    run = Run(str(folder / "run"), str(folder / "shared"), "key", f"test_watchdog_{os.getpid()}_", metrics_port)
    mode = settings.get("MOBILE_SAM_MODEL_CONTROL_MODE", "none")
    running = subprocess.Popen(
        [
            *(sys.executable, "-c", program, command, f"--http-port={port}", f"--metrics-port={metrics_port}"),
            *(f"--model-repository={folder / 'deployed'}", f"--model-control-mode={mode}", *flags),
        ],
        env={
            **os.environ,
            "FAKE_TRITON": str(folder),
            VARIABLE: json.dumps(asdict(run)),
            "MOBILE_SAM_INFERENCE_TIMEOUT": "0.5",
            **settings,
        },
    )
    return Watched(running, folder)


@pytest.fixture
def program() -> str:
    """Program that starts the watchdog; tests may override this."""
    return PROGRAM


@pytest.fixture
def watched(tmp_path: Path, settings: dict[str, str], program: str) -> Iterator[Watched]:
    """A watchdog with a ready Triton."""
    watched = start(tmp_path, settings, program)
    running = watched.process
    try:
        watched.wait_until(lambda: watched.health.ready)
        yield watched
    finally:
        descendants = watched.descendants() if running.poll() is None else []
        running.kill()
        running.wait()
        for process in descendants:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def test_health_is_ready_when_every_model_has_answered(watched):
    assert watched.health.accepts_requests
    assert len(watched.starts()) == 1


LOOPBACK = ("--allow-grpc=false", "--http-address=127.0.0.1")


@pytest.mark.parametrize("flags", [LOOPBACK, ()], ids=["loopback", "all addresses"])
def test_version_is_published_and_an_old_one_on_other_addresses_is_a_warning(tmp_path, settings, capfd, flags):
    watched = start(tmp_path, settings, flags=flags)
    try:
        watched.wait_until(lambda: watched.health.ready)
        assert watched.health.version == "2.51.0"
    finally:
        watched.process.terminate()
        watched.process.wait(TIMEOUT_S)
    lines = capfd.readouterr().err.splitlines()
    assert sum("Triton 2.51.0 is ready after " in line for line in lines) == 1
    assert sum("[WARNING]" in line and "listens on grpc 0.0.0.0" in line for line in lines) == (flags == ())


@pytest.mark.parametrize("process", ["tritonserver", "stub"])
@pytest.mark.parametrize(("signum", "cause"), [(signal.SIGKILL, "died"), (signal.SIGSTOP, "stopped")], ids=str)
def test_triton_is_restarted_after_a_process_dies_or_is_stopped(watched, process, signum, cause):
    (first,) = watched.starts()
    os.kill(first if process == "tritonserver" else int((watched.folder / "stub").read_text()), signum)
    watched.wait_until(lambda: not watched.health.ready)
    assert cause == "died" or "stopped by a signal" in watched.health.reason
    watched.wait_until(lambda: watched.health.ready and len(watched.starts()) == 2)
    assert watched.health.restarts == {cause: 1}
    assert not psutil.pid_exists(first)


@pytest.mark.parametrize("settings", [{"FAKE_FORK": ""}], ids=["fork"])
def test_a_fork_of_a_stub_may_end(watched):
    os.kill(int((watched.folder / "fork").read_text()), signal.SIGKILL)
    watched.wait_for_records()
    assert watched.health.ready
    assert not watched.health.restarts


def test_triton_is_restarted_once_after_a_reported_fault(watched):
    health.report_fault(watched.shared)
    watched.wait_until(lambda: watched.health.ready and len(watched.starts()) == 2)
    watched.wait_for_records()
    assert watched.health.restarts == {"died": 1}


@pytest.mark.parametrize("program", [PROGRAM.replace("grace_s=0.3", "grace_s=30.0")], ids=["long grace"])
def test_a_briefly_stopped_triton_is_not_restarted(watched):
    os.kill(watched.starts()[0], signal.SIGSTOP)
    watched.wait_until(lambda: not watched.health.ready)
    os.kill(watched.starts()[0], signal.SIGCONT)
    watched.wait_until(lambda: watched.health.ready)
    assert len(watched.starts()) == 1


@pytest.mark.parametrize(
    ("fault", "cause"),
    [("errors", "failed"), ("problems", "failed"), ("silent", "hung"), ("mute", "hung")],
)
@pytest.mark.parametrize("program", [PROGRAM.replace("margin_s=30.0", "margin_s=1.0")], ids=["short margin"])
def test_a_failing_or_hung_triton_is_restarted(watched, fault, cause):
    file = watched.folder / fault
    file.touch()
    watched.wait_until(lambda: not watched.health.ready)
    watched.wait_until(lambda: watched.health.restarts)
    file.unlink()
    watched.wait_until(lambda: watched.health.ready)
    assert set(watched.health.restarts) == {cause}


def test_full_shared_memory_is_reported_but_requests_are_accepted(watched):
    full = watched.folder / "full"
    full.touch()
    watched.wait_until(lambda: watched.health.state == "failing")
    assert (watched.health.reason, watched.health.accepts_requests) == ("no room", True)
    full.unlink()
    watched.wait_until(lambda: watched.health.ready)
    assert not watched.health.restarts


@pytest.mark.parametrize("program", [PROGRAM.replace("(0.0, 0.1)", "(0.0, 3600.0)")], ids=["long delays"])
def test_only_starts_without_a_ready_triton_in_between_are_delayed(watched):
    for restarts in (1, 2, 3):
        os.kill(watched.starts()[-1], signal.SIGKILL)
        watched.wait_until(lambda restarts=restarts: watched.health.ready and len(watched.starts()) == 1 + restarts)
    assert watched.health.restarts == {"died": 3}


def test_a_later_start_that_fails_is_retried(watched):
    (watched.folder / "refuses").write_text(LOAD_ERROR)
    os.kill(watched.starts()[0], signal.SIGKILL)
    watched.wait_until(lambda: len(watched.starts()) >= 4)
    assert not watched.health.accepts_requests
    watched.wait_until(lambda: watched.health.reason == "model mul cannot be loaded: Internal: no number")
    (watched.folder / "refuses").unlink()
    watched.wait_until(lambda: watched.health.ready)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param(LOAD_ERROR, "model mul cannot be loaded: Internal: no number", id="model"),
        pytest.param(
            "E1 \"Poll failed for model directory 'mul': no text proto\"\n",
            "model mul cannot be loaded: no text proto",
            id="config",
        ),
        pytest.param("error: no such port\n", "no such port", id="server"),
    ],
)
def test_first_start_that_fails_stops_the_service_with_the_reason(tmp_path, capfd, text, reason):
    (tmp_path / "refuses").write_text(text)
    watched = start(tmp_path, {}, MANAGER)
    assert watched.process.wait(TIMEOUT_S) == 7
    assert len(watched.starts()) == 1
    assert (watched.health.state, watched.health.reason) == ("failed", reason)
    assert text.strip() in capfd.readouterr().err


SAME = "mobile_sam_encoder returned the same embedding for two different images"
NO_MASK = "mobile_sam_decoder returned no mask for a click on a white square"
REMEDY = "(decoder another, encoder an engine): set MOBILE_SAM_ENGINE to openvino or onnxruntime"


@pytest.mark.parametrize(("fault", "finding"), [("constant", SAME), ("empty", NO_MASK)])
def test_first_start_with_a_broken_engine_stops_the_service_with_a_remedy(tmp_path, fault, finding):
    (tmp_path / fault).touch()
    watched = start(tmp_path, {}, MANAGER)
    watched.wait_until(lambda: watched.health.ready or watched.process.poll() is not None)
    assert watched.process.returncode == 7
    assert (watched.health.state, watched.health.reason) == ("failed", f"{finding} {REMEDY}")


def test_engines_are_checked_again_after_a_restart(watched):
    (watched.folder / "constant").touch()
    os.kill(watched.starts()[0], signal.SIGKILL)
    watched.wait_until(lambda: watched.health.reason == f"{SAME} {REMEDY}")
    assert watched.health.state == "restarting"
    (watched.folder / "constant").unlink()
    watched.wait_until(lambda: watched.health.ready)


def test_stop_signal_stops_triton_gracefully_and_leaves_no_process(watched):
    descendants = watched.descendants()
    assert len(descendants) == 3  # inner watchdog, Triton, stub
    watched.process.send_signal(signal.SIGTERM)
    assert watched.process.wait(TIMEOUT_S) == 0
    assert (watched.folder / "ended").exists()
    assert watched.health.state == "stopped"
    _, alive = psutil.wait_procs(descendants, timeout=TIMEOUT_S)
    assert not alive


def test_stop_waits_for_workers_with_requests_in_triton(watched):
    lock = RequestsLock(watched.shared)
    # Like BentoML: signal the process and its children.
    for process in (watched.process, *psutil.Process(watched.process.pid).children()):
        process.send_signal(signal.SIGTERM)
    watched.wait_until(lambda: watched.health.state == "stopping")
    watched.process.send_signal(signal.SIGTERM)  # a second signal changes nothing
    time.sleep(0.3)
    assert not (watched.folder / "ended").exists()
    lock.release()
    assert watched.process.wait(TIMEOUT_S) == 0
    assert (watched.folder / "ended").exists()


def test_a_killed_worker_releases_its_requests_lock(tmp_path):
    program = f"""
import sys, time
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from utils.triton.health import RequestsLock
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
def test_triton_dies_with_a_killed_watchdog(watched, killed):
    descendants = watched.descendants()
    (watched.process if killed == "outer" else watched.inner()).kill()
    _, alive = psutil.wait_procs(descendants, timeout=TIMEOUT_S)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def test_health_is_unknown_while_the_watchdog_is_suspended(watched, monkeypatch):
    monkeypatch.setattr(health, "MAX_RECORD_AGE_S", 1.0)
    inner = watched.inner()
    inner.suspend()
    watched.wait_until(lambda: "watchdog does not respond" in watched.health.reason)
    inner.resume()
    watched.wait_until(lambda: watched.health.ready)
    time.sleep(1)
    assert len(watched.starts()) == 1  # only the watchdog was silent


def test_readiness_ends_when_the_inner_watchdog_is_killed(watched):
    inner = watched.inner()
    inner.kill()
    inner.wait(TIMEOUT_S)
    found = watched.health
    # A stale record would read as "failing".
    assert (found.state, found.reason) == ("restarting", "the watchdog has exited, and Triton with it")


def test_a_removed_run_folder_is_recreated_without_a_restart(capfd, watched):
    folder = watched.folder / "run"
    watched.wait_until((folder / "metrics").is_dir)
    folder.rename(watched.folder / "away")  # atomic, unlike a recursive removal
    watched.wait_until((folder / "metrics").is_dir)
    assert folder.stat().st_mode & 0o777 == 0o700
    watched.wait_for_records()
    watched.wait_until(lambda: watched.health.ready)
    assert len(watched.starts()) == 1
    messages = [line for line in capfd.readouterr().err.splitlines() if f"{folder} was removed" in line]
    assert len(messages) == 1


@pytest.fixture
def worker() -> Iterator[psutil.Process]:
    """A sibling process of the watchdog with the command line of an API worker."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "http_api_server"]) as running:
        yield psutil.Process(running.pid)
        running.kill()


def test_a_stopped_api_worker_is_killed(watched, worker):
    worker.suspend()
    watched.wait_until(lambda: worker.status() == psutil.STATUS_ZOMBIE)
    watched.wait_until(lambda: watched.health.ready)


def test_a_briefly_stopped_api_worker_is_not_killed(watched, worker, monkeypatch):
    workers = Workers(os.getpid())
    for _ in range(2):
        worker.suspend()
        for _ in range(MIN_STOPPED_CHECKS - 1):
            workers.kill_stopped()
        worker.resume()
        workers.kill_stopped()
    assert worker.is_running()


EXPLICIT = pytest.mark.parametrize("settings", [{"MOBILE_SAM_MODEL_CONTROL_MODE": "explicit"}], ids=["explicit"])


def test_an_unloaded_model_is_reported_without_a_restart(watched):
    (watched.folder / "unloaded").touch()
    watched.wait_until(
        lambda: watched.health.state == "failing" and "mobile_sam is not loaded" in watched.health.reason
    )
    watched.wait_until(lambda: all(f"{model} is not loaded" in watched.health.reason for model in LOAD_ORDER))
    (watched.folder / "unloaded").unlink()
    watched.wait_until(lambda: watched.health.ready)
    assert watched.health.restarts == {}


@EXPLICIT
def test_explicit_mode_accepts_replaced_model_processes(watched):
    first = (watched.folder / "stub").read_text()
    (watched.folder / "swap").touch()
    watched.wait_until(lambda: not (watched.folder / "swap").exists())
    second = (watched.folder / "stub").read_text()
    assert second != first
    watched.wait_for_records()
    watched.wait_until(lambda: watched.health.ready)
    assert watched.health.restarts == {}
    os.kill(int(second), signal.SIGKILL)
    watched.wait_until(lambda: watched.health.ready and len(watched.starts()) == 2)
    assert watched.health.restarts == {"died": 1}


@pytest.fixture
def polled(repository: Path, deployed: Path, settings: dict[str, str]) -> Path:
    """A model repository with version 1, read in poll mode through links."""
    for model in LOAD_ORDER:
        link(repository, deployed, model, 1)
    settings |= {"MOBILE_SAM_MODEL_CONTROL_MODE": "poll", "MOBILE_SAM_MODEL_REPOSITORY": str(repository)}
    (repository.parent / "loaded").write_text(" ".join(f"{model}/1" for model in LOAD_ORDER))
    return repository


def test_poll_mode_links_called_models_first_and_unlinks_them_last(polled, watched):
    deployed = watched.folder / "deployed"

    def linked() -> list[str]:
        return [f"{model}/{version}" for model in LOAD_ORDER for version in versions(deployed, model)]

    first, called = [f"{model}/1" for model in LOAD_ORDER], {f"{model}/2" for model in CALLS["mobile_sam"]}
    add_version(polled, 2)
    watched.wait_until(lambda: set(linked()) == {*first, *called})
    (watched.folder / "loaded").write_text(" ".join([*first, *called]))
    watched.wait_until(lambda: len(linked()) == 2 * len(LOAD_ORDER))
    second = [f"{model}/2" for model in LOAD_ORDER]
    remove_version(polled, 1)
    links = [deployed / name for name in first]
    (watched.folder / "loaded").write_text(" ".join([*first, *second]))
    watched.wait_until(
        lambda: [path.is_symlink() for path in links] == [name.split("/")[0] not in CALLS for name in first]
    )
    (watched.folder / "loaded").write_text(" ".join(second))
    watched.wait_until(lambda: not any(path.is_symlink() for path in links))
    assert linked() == second


def test_triton_is_restarted_if_model_files_were_replaced_during_loading(polled, watched):
    silent, file = watched.folder / "silent", polled / "mobile_sam_encoder" / "1" / "model.onnx"
    silent.touch()
    os.kill(watched.starts()[0], signal.SIGKILL)
    watched.wait_until(lambda: len(watched.starts()) == 2)
    file.rename(polled / "before")
    file.touch()
    silent.unlink()
    watched.wait_until(lambda: watched.health.ready and len(watched.starts()) == 3)
    assert watched.health.restarts == {"died": 1, "failed": 1}
    (polled / "before").replace(file)  # no restart after the models have loaded
    watched.wait_for_records()
    assert watched.health.restarts == {"died": 1, "failed": 1}


@EXPLICIT
def test_a_restarted_triton_sees_only_complete_versions(polled, settings, watched):
    deployed, file = watched.folder / "deployed", polled / "mobile_sam" / "1" / "weights.json"
    add_version(polled, 2)
    for model in LOAD_ORDER:
        link(polled, deployed, model, 2)
    (watched.folder / "refuses").touch()
    file.rename(polled / "away")
    os.kill(watched.starts()[0], signal.SIGKILL)
    watched.wait_until(lambda: len(watched.starts()) >= 3)
    assert [versions(deployed, model) for model in LOAD_ORDER] == [[2]] * len(LOAD_ORDER)
    (polled / "away").rename(file)
    (watched.folder / "refuses").unlink()
    watched.wait_until(lambda: watched.health.ready)
    assert [versions(deployed, model) for model in LOAD_ORDER] == [[1, 2]] * len(LOAD_ORDER)
