"""Detection of API workers stopped by a signal: BentoML restarts dead workers but does not notice stopped ones."""

import contextlib
import logging
import os
import signal
import time

from utils.triton import processes

logger = logging.getLogger("watchdog")

WORKER_COMMAND = "http_api_server"
"""Part of the command line with which BentoML starts an API worker."""
SEARCH_INTERVAL_S = 2.0
"""Time between two searches for workers, which read all of /proc."""
MIN_STOPPED_CHECKS = 6
"""Consecutive checks (3 s) that must find a worker stopped. Counting checks excludes time when the watchdog itself was
stopped."""


class Workers:
    """API workers of one service."""

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
        if processes.state(self._manager) == "T":  # the whole service is suspended (Ctrl-Z): nothing would restart it
            return
        for pid, checks in self._stopped_checks.items():
            self._stopped_checks[pid] = checks + 1 if processes.state(pid) == "T" else 0
            if self._stopped_checks[pid] == MIN_STOPPED_CHECKS:
                logger.error("API worker %d was stopped by a signal; killing it so that BentoML starts another", pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
