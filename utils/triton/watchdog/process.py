"""Processes that the watchdog looks after: Triton's server, the Python processes below it, and
the API workers.
"""

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from threading import Thread
from typing import Any, NamedTuple

from orchestrator.flood_log import FloodLog
from utils import processes
from utils.triton.installation import NVIDIA_DRIVER
from utils.triton.run import SHARED_MEMORY
from utils.triton.watchdog import Timings

logger = logging.getLogger("watchdog")
LOG = FloodLog(logger, max_lines=5, window_s=10, level=logging.ERROR)
"""Lines of the watchdog, which a Triton that fails again and again repeats."""

STUB_NAME = "triton_python_b"
"""Process name of a Python model, truncated by the kernel."""
DIED, STOPPED, FAILED, HUNG = "died", "stopped", "failed", "hung"
"""Causes of a restart, as the metric `mobile_sam_triton_restarts_total` labels them."""
LOAD_ERROR = re.compile(
    r"(?:failed to load|Poll failed for model directory) '(?P<model>[^']+)'"
    r"(?: version \d+)?: (?P<cause>.+?)(?:\\n|\"?$)"
)
FINAL_ERROR = re.compile(r"^error: (?P<cause>.+)")
ERROR_LINES_KEPT = 200
HARMLESS_WITHOUT_GPU = re.compile(
    rb"CudaDriverHelper has not been initialized|unable to create stream for ensemble|no pinned"
    rb" memory pool"
)
"""Messages that Triton logs on a machine without an NVIDIA driver."""
WORKER_COMMAND = "http_api_server"
"""Part of the command line with which BentoML starts an API worker."""
SEARCH_INTERVAL_S = 2.0
"""Time between two searches for workers, which read all of /proc."""
MIN_STOPPED_CHECKS = 6
"""Consecutive checks (3 s) that must find a worker stopped. Counting checks excludes time when the
watchdog itself was stopped."""


class RestartReason(NamedTuple):
    """Reason to restart Triton."""

    cause: str
    """`DIED`, `STOPPED`, `FAILED` or `HUNG`."""
    detail: str
    """Text for the log and `/readyz`."""


class TritonServer:
    """One run of the real server with all its processes."""

    def __init__(
        self,
        command: Sequence[str],
        shm_prefix: str,
        timings: Timings,
        *,
        models_change: bool = False,
    ) -> None:
        """Start the server in its own session, so that Ctrl-C in a terminal does not reach it.

        If models change while it runs, it starts and ends Python processes.
        """
        self._shm_prefix, self._timings = shm_prefix, timings
        parent = os.getpid()

        def prepare() -> None:
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            processes.die_with_parent(parent)

        options: dict[str, Any] = {
            "start_new_session": True,
            "preexec_fn": prepare,
            "stderr": subprocess.PIPE,
        }
        self._process: subprocess.Popen[bytes] = subprocess.Popen(command, **options)
        self.pid = self._process.pid
        self._errors: deque[str] = deque(maxlen=ERROR_LINES_KEPT)
        self._copying = Thread(target=self._copy_errors, daemon=True)
        self._copying.start()
        self._reap_timeout_s = self._timings.reap_timeout_s if models_change else 0.0
        self._dead_since: dict[int, float] = {}
        self._waits_since: float | None = None
        self._stubs: set[int] = set()

    def update_stubs(self) -> None:
        """Record the current Python processes as the expected ones.

        Triton reaps the processes that it ends itself. One that died on its own stays behind as a
        zombie. A fork of one has its name, but may end.
        """
        running = processes.children(self.pid)
        self._stubs = {pid for pid, name, _ in running if name.startswith(STUB_NAME)}

    def exit_status(self) -> int | None:
        """Return the exit status, or None while the server runs."""
        return self._process.poll()

    def _copy_errors(self) -> None:
        """Write Triton's standard error to the watchdog's, and remember the last lines."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if HARMLESS_WITHOUT_GPU.search(line) and not NVIDIA_DRIVER.exists():
                continue
            self._errors.append(line.decode("utf-8", "replace").rstrip())
            with contextlib.suppress(OSError):
                sys.stderr.buffer.write(line)
                sys.stderr.buffer.flush()

    def start_error(self) -> str:
        """Return why the server ended while it was starting: the model and the cause, or an
        empty string if unknown.
        """
        self._copying.join(timeout=1)
        for line in self._errors:
            load_error = LOAD_ERROR.search(line)
            if load_error:
                return f"model {load_error['model']} cannot be loaded: {load_error['cause']}"
        for line in self._errors:
            final_error = FINAL_ERROR.match(line)
            if final_error:
                return final_error["cause"]
        return ""

    def process_fault(self) -> RestartReason | None:
        """Return which process has died or was stopped (`DIED`, `STOPPED`), or None if all run."""
        status = self.exit_status()
        if status is not None:
            return RestartReason(
                DIED, f"Triton ended with {'signal' if status < 0 else 'status'} {abs(status)}"
            )
        states = {pid: processes.state(pid) for pid in (self.pid, *self._stubs)}
        now, before = time.monotonic(), self._dead_since
        self._dead_since = {
            pid: before.get(pid, now) for pid, state in states.items() if state in processes.DEAD
        }
        dead = [
            pid for pid, since in self._dead_since.items() if now - since >= self._reap_timeout_s
        ]
        stopped = [pid for pid, state in states.items() if state == "T"]
        for cause, pids, event in (
            (DIED, dead, "has died"),
            (STOPPED, stopped, "was stopped by a signal"),
        ):
            if pids:
                name = STUB_NAME if pids[0] in self._stubs else "tritonserver"
                return RestartReason(cause, f"process {pids[0]} ({name}) {event}")
        return None

    def start_fault(self) -> RestartReason | None:
        """Return why a start will not end (`HUNG`), or None.

        If a Python process does not run for a second while its model is loaded, Triton takes it for
        dead, and waits for its end without killing it.
        """
        now = time.monotonic()
        self._waits_since = (
            (self._waits_since or now) if processes.waits_for_child(self.pid) else None
        )
        if (
            self._waits_since is None
            or now - self._waits_since < self._timings.start_reap_timeout_s
        ):
            return None
        return RestartReason(
            HUNG, "Triton took a model's process for dead while it loaded the model"
        )

    def stop(self) -> None:
        """Ask the server to stop, then kill what is left."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(self._timings.stop_timeout_s)
        except subprocess.TimeoutExpired:
            logger.warning(
                "Triton did not stop within %g s, and is killed", self._timings.stop_timeout_s
            )
        self.kill()

    def kill(self) -> None:
        """Kill all processes of this run and free their shared memory."""
        # By process group: after the server has died, its children have another parent.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        while any(processes.state(pid) not in processes.DEAD for pid in self._stubs):
            time.sleep(0.01)
        # At its exit, Python aborts if a thread is writing to standard error.
        self._copying.join(timeout=1)
        for region in SHARED_MEMORY.glob(f"{self._shm_prefix}*"):
            region.unlink(missing_ok=True)


class Workers:
    """API workers of one service: BentoML restarts dead workers but does not notice stopped
    ones.
    """

    def __init__(self, manager: int) -> None:
        """Initialize without searching; BentoML's process manager is the parent of the workers."""
        self._manager = manager
        self._searched_at = -float("inf")
        self._stopped_checks: dict[int, int] = {}

    def kill_stopped(self) -> None:
        """Kill each worker found stopped in `MIN_STOPPED_CHECKS` consecutive calls."""
        if time.monotonic() - self._searched_at > SEARCH_INTERVAL_S:
            self._searched_at = time.monotonic()
            children = processes.children(self._manager)
            pids = [pid for pid, _, command_line in children if WORKER_COMMAND in command_line]
            self._stopped_checks = {pid: self._stopped_checks.get(pid, 0) for pid in pids}
        # The whole service is suspended (Ctrl-Z): nothing would restart it.
        if processes.state(self._manager) == "T":
            return
        for pid, checks in self._stopped_checks.items():
            self._stopped_checks[pid] = checks + 1 if processes.state(pid) == "T" else 0
            if self._stopped_checks[pid] == MIN_STOPPED_CHECKS:
                line = (
                    f"API worker {pid} was stopped by a signal; killing it so that BentoML starts"
                    " another"
                )
                LOG.log("stopped API workers", line)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
