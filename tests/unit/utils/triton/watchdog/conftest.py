"""The real watchdog process, with a fake Triton."""

import contextlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import pytest

import harness
from harness import free_ports
from utils.triton.health import Health, read_health
from utils.triton.run import VARIABLE, RunState
from utils.triton.watchdog import Timings

ROOT = Path(__file__).resolve().parents[5]
FAKE = Path(__file__).with_name("fake_triton.py")
TIMEOUT_S = 240
"""Time until a test fails; no test depends on speed."""

# The production timeouts are minutes.
TIMINGS = Timings(
    tick_s=0.1,
    stopped_grace_s=0.3,
    hang_margin_s=300.0,
    start_reap_timeout_s=0.3,
    restart_delays_s=(0.0, 0.1),
    reap_timeout_s=3.0,
    stop_timeout_s=60.0,
    idle_before_probe_s=0.1,
    encoder_idle_before_probe_s=0.1,
    retry_interval_s=0.1,
    metrics_timeout_s=300.0,
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


@dataclass
class Watched:
    """A running watchdog."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def health(self) -> Health:
        return read_health(self.health_file)

    @property
    def health_file(self) -> Path:
        return self.folder / "run_of_a_test" / "health.json"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def starts(self) -> list[int]:
        """Return the process ids of all Triton runs so far."""
        file = self.folder / "starts"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def stub(self) -> int:
        """Return the process id of the Python model."""
        return int((self.folder / "stub").read_text())

    def wait_until(self, condition: Callable[[], object]) -> None:
        harness.wait_until(condition, TIMEOUT_S, f"not in time: {self.folder}")

    def wait_for_restart(self, last: int) -> None:
        """Wait until another Triton than the one with this process id is ready."""
        self.wait_until(lambda: self.starts()[-1] != last and self.health.ready)

    def wait_for_records(self) -> None:
        """Wait until the watchdog has written its health for a second."""
        later = self.health.written_at + 1
        self.wait_until(lambda: self.health.written_at > later)

    def descendants(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


@pytest.fixture
def settings() -> dict[str, str]:
    """Extra environment variables of the service; tests may override this."""
    return {}


def start(folder: Path, settings: dict[str, str], program: str = PROGRAM) -> Watched:
    """Start a watchdog of the fake Triton in a folder, by a program, with environment variables
    of the service.
    """
    command = folder / "server"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    port, metrics_port = free_ports(2)
    run = RunState(
        str(folder / "run_of_a_test"),
        "key",
        metrics_port,
        source=settings.get("source"),
        timeout_s=0.5,
    )
    run.restore_folder()
    mode = settings.get("MOBILE_SAM_MODEL_CONTROL_MODE", "none")
    flags = {"http-port": port, "metrics-port": metrics_port, "model-control-mode": mode}
    flags["model-repository"] = folder / "deployed"
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen(
            [
                sys.executable,
                "-c",
                program,
                command,
                *(f"--{name}={value}" for name, value in flags.items()),
            ],
            env={
                **os.environ,
                "FAKE_TRITON": str(folder),
                VARIABLE: json.dumps(asdict(run)),
                **settings,
            },
            stderr=log,
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
    try:
        watched.wait_until(lambda: watched.health.ready)
        yield watched
    finally:
        descendants = watched.descendants() if watched.process.poll() is None else []
        watched.process.kill()
        watched.process.wait()
        for process in descendants:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
