"""API workers that were stopped by a signal: BentoML starts another for one that dies, but does not notice these."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time

from utils import processes

logger = logging.getLogger("watchdog")

COMMAND = "http_api_server"
"""Part of an API worker's command line, as BentoML starts it."""
SEARCH_EVERY_S = 2.0
"""Time between two searches for workers, which read all of /proc."""
STOPPED_LOOKS = 6
"""Looks in a row that must find a worker stopped: 3 s, during which a watchdog that was stopped too counts nothing."""


class Workers:
    """The API workers of one service."""

    def __init__(self, manager: int) -> None:
        """Search for none yet.

        Args:
            manager: the process that starts them.
        """
        self._manager = manager
        self._searched_at = -float("inf")
        self._stopped: dict[int, int] = {}

    def kill_stopped(self) -> None:
        """Kill each worker that was found stopped often enough; to be called at each look of the watchdog."""
        if time.monotonic() - self._searched_at > SEARCH_EVERY_S:
            self._searched_at = time.monotonic()
            pids = [pid for pid in processes.children(self._manager) if COMMAND in processes.command_line(pid)]
            self._stopped = {pid: self._stopped.get(pid, 0) for pid in pids}
        if processes.state(self._manager) == "T":  # all of the service, as by Ctrl-Z: nobody would start another
            return
        for pid, looks in self._stopped.items():
            self._stopped[pid] = looks + 1 if processes.state(pid) == "T" else 0
            if self._stopped[pid] == STOPPED_LOOKS:
                logger.error("API worker %d was stopped by a signal: it is killed, and another is started", pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
