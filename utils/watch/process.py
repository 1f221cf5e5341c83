"""One run of Triton, with the Python processes below it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence

from utils import processes
from utils.triton import SHARED_MEMORY, SHM_PREFIX_VARIABLE

STUB = "triton_python_b"
"""A Python model's process, as the kernel shortens its name."""
DIED, STOPPED = "died", "stopped"
ENDED_WITHIN = 3.0
"""Seconds from the end of a Python process until Triton, where it ended that itself, has asked how."""
STOP_LIMIT = 9.0
"""Seconds that Triton may take to end; its own limit is a little less."""


class Triton:
    """One run of the real server, with all its processes."""

    def __init__(self, command: Sequence[str], *, models_change: bool = False) -> None:
        """Start it, in a session of its own: what a person types at a terminal (Ctrl-C) does not reach it.

        Args:
            command: the real server with its arguments.
            models_change: it loads and unloads models while it runs, and so starts and ends Python processes.
        """
        parent = os.getpid()

        def prepare() -> None:
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            processes.die_with_parent(parent)

        self.started_at = time.monotonic()
        self._process = subprocess.Popen(command, start_new_session=True, preexec_fn=prepare)  # noqa: PLW1509
        self._patience = ENDED_WITHIN if models_change else 0.0
        self._dead_since: dict[int, float] = {}
        self.stubs: dict[int, str] = {}
        """Its Python processes, once it is ready."""

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def remember_stubs(self) -> None:
        """Take what Python processes there are for those that there should be: one that Triton ended is forgotten.

        Of one that died by itself Triton does not ask how it ended, and so the kernel keeps a trace of it.
        """
        self.stubs = {pid: name for pid, name in processes.descendants(self.pid).items() if name.startswith(STUB)}

    def exit_status(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.poll()

    def ailment(self) -> tuple[str, str]:
        """What is wrong with its processes, in a word (`DIED`, `STOPPED`) and in many; two empty texts: nothing."""
        status = self.exit_status()
        if status is not None:
            return DIED, f"Triton ended with {'signal' if status < 0 else 'status'} {abs(status)}"
        states = {pid: processes.state(pid) for pid in (self.pid, *self.stubs)}
        now = time.monotonic()
        self._dead_since = {
            pid: self._dead_since.get(pid, now) for pid, state in states.items() if state in processes.DEAD
        }
        dead = [pid for pid, since in self._dead_since.items() if now - since >= self._patience]
        stopped = [pid for pid, state in states.items() if state == "T"]
        for cause, found, what in ((DIED, dead, "has died"), (STOPPED, stopped, "was stopped by a signal")):
            if found:
                return cause, f"process {found[0]} ({self.stubs.get(found[0], 'tritonserver')}) {what}"
        return "", ""

    def stop(self) -> None:
        """Let it end in its own way, then end what is left."""
        self._process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_LIMIT)
        self.kill()

    def kill(self) -> None:
        """End all of it at once, and free the memory that its processes shared."""
        # By its group: what is left of a Triton that died has another parent by now.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        while any(processes.state(pid) not in processes.DEAD for pid in self.stubs):
            time.sleep(0.01)
        prefix = os.environ.get(SHM_PREFIX_VARIABLE)
        if prefix:
            for region in SHARED_MEMORY.glob(f"{prefix}*"):
                region.unlink(missing_ok=True)
