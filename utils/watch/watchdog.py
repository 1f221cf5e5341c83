"""Keeps Triton alive: what BentoML starts as `tritonserver` is this, and the real one runs below it.

BentoML itself starts a dead Triton again after ten seconds, in a container never, and notices neither one that hangs
nor one whose Python processes have died: Triton goes on calling itself ready while every inference fails. The watchdog

- runs a real inference on every model that has answered none of late, and looks at Triton's processes;
- writes down what it finds, for `/readyz` and for the API workers to refuse what cannot be answered (`utils.health`);
- starts Triton again when it has died, lost a process, been stopped, or not answered for too long;
- kills an API worker that was stopped, so that BentoML starts another;
- on SIGTERM waits until no API worker has a request in Triton, and only then ends it, with all it had.

It is two processes. BentoML signals what it started and the children of that: with one process the signal to stop would
reach Triton at once, in the middle of accepted requests.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from utils import health, processes, versions
from utils.health import Health, State
from utils.logs import log_as_set
from utils.settings import Settings
from utils.triton import ROOT, metrics_port, shared_memory_complaint
from utils.watch.examination import Examination
from utils.watch.probes import is_ready
from utils.watch.process import DIED, STOPPED, Triton
from utils.watch.workers import Workers

logger = logging.getLogger("watchdog")

ENDS = (signal.SIGTERM, signal.SIGINT)
TICK = 0.5
"""Seconds between two looks."""
STOPPED_FOR = 3.0
"""Seconds that a process may be stopped, as by a debugger, before Triton is started again."""
BEYOND_A_REQUEST = 20.0
"""Seconds beyond the limit of a caller's request that a model may not answer, while asked."""
START_LIMIT = 1800.0
"""Seconds that Triton may take to load its models; TensorRT builds engines for minutes."""
PAUSES = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds before Triton is started again, growing while it does not get ready in between."""
STARTING = "Triton is being started"
DRAIN_LIMIT = 28.0
"""Seconds that API workers may take to finish what they have accepted."""


class Watchdog:
    """Starts Triton, watches it, starts it again, and ends it."""

    def __init__(self, command: Sequence[str], file: Path, folder: Path, parent: int, manager: int) -> None:
        """Make a watchdog.

        Args:
            command: the real server with its arguments, `--http-port=` among them.
            file: where the service's processes share what they know.
            folder: what they share by names; made again where it was removed.
            parent: the process that this one ends with.
            manager: BentoML's process manager, which starts the API workers.
        """
        self._command, self._file, self._folder, self._parent = command, file, folder, parent
        self._workers = Workers(manager)
        self._port = int(next(arg for arg in command if arg.startswith("--http-port=")).partition("=")[2])
        self._metrics_port = metrics_port()
        settings = Settings.from_environment()
        self._patience = settings.inference_timeout + BEYOND_A_REQUEST
        self._models_change = settings.model_control_mode != "none"
        self._folders = self._linked_folders(settings)
        self._polls = settings.model_control_mode == "poll"
        self._hidden: set[int] = set()
        self._restarts: Counter[str] = Counter()
        self._last: tuple[State, str] = ("starting", STARTING)
        self._stopped_since: float | None = None
        self._attempts = 0
        self._folder_is_lost = False

    def run(self) -> int:
        """Until a signal ends it; the exit status."""
        signal.pthread_sigmask(signal.SIG_BLOCK, [*ENDS, signal.SIGCHLD])
        while True:
            cause = self._serve()
            if not cause:
                return 0
            self._restarts[cause] += 1
            pause = PAUSES[min(self._attempts, len(PAUSES) - 1)]
            self._attempts += 1
            until = time.monotonic() + pause
            while time.monotonic() < until:
                self._tell(*self._last)  # whose readers look at how old it is
                if self._told_to_stop(min(TICK, pause)):
                    self._tell("stopped")
                    return 0

    def _serve(self) -> str:
        """One run of Triton; the cause of its end, empty where the watchdog was told to stop."""
        self._tell(*(("restarting", "Triton is being started again") if self._restarts else ("starting", STARTING)))
        if self._folders:
            self._hidden = versions.hide_broken(*self._folders, self._hidden)
        stamps = versions.stamps(self._folders[1]) if self._folders else {}
        triton = Triton(self._command, models_change=self._models_change)
        examination = Examination(self._port, self._metrics_port, self._patience)
        ready = False
        try:
            while not self._told_to_stop(TICK if ready else TICK / 2):
                examination.go_on()
                self._keep_service_whole()
                became_ready = not ready and examination.complete()
                if became_ready:
                    ready, self._attempts = True, 0
                    triton.remember_stubs()
                elif ready and self._models_change:
                    triton.remember_stubs()
                    self._show_versions()
                cause, why = self._verdict(triton, examination, ready=ready)
                if became_ready and versions.replaced(stamps):
                    # Weights of one export and a network of another would answer together.
                    cause, why = "failed", "model files were replaced while Triton loaded them"
                if cause:
                    logger.error("%s: Triton is started again", why)
                    self._tell("restarting", why)
                    triton.kill()
                    return cause
                if ready:
                    complaint = triton.ailment()[1] or examination.complaint() or shared_memory_complaint()
                    self._tell("failing" if complaint else "ready", complaint)
                else:
                    self._tell(*self._last)
            self._stop(triton, ready=ready)
            return ""
        finally:
            examination.end()

    def _linked_folders(self, settings: Settings) -> tuple[Path, Path] | None:
        """The model repository and the folder of links to it that Triton reads; None where it reads from elsewhere."""
        served = next(arg for arg in self._command if arg.startswith("--model-repository=")).partition("=")[2]
        repository = settings.repository_in(ROOT)
        return None if repository is None else (repository, Path(served))

    def _show_versions(self) -> None:
        """Let a Triton that looks for changes see those of the repository.

        It makes changes of several models in any order: it sees a new version first of the models that others ask, and
        of one that is gone they are the last that it misses.
        """
        if self._folders is None or not self._polls:
            return
        with contextlib.suppress(OSError):  # the repository is just being changed: there is a next time
            for model in versions.IN_ORDER:
                new, gone = versions.changes(*self._folders, model)
                for version in new:
                    if not versions.missing(self._folders[0], version) and all(
                        self._answers(other, version) for other in versions.ASKS.get(model, ())
                    ):
                        versions.link(*self._folders, model, version)
                for version in gone:
                    askers = (asker for asker, asked in versions.ASKS.items() if model in asked)
                    if not any(self._answers(asker, version) for asker in askers):
                        versions.unlink(self._folders[1], model, version)

    def _answers(self, model: str, version: int) -> bool:
        return is_ready(model, version, self._port, TICK)

    def _verdict(self, triton: Triton, examination: Examination, *, ready: bool) -> tuple[str, str]:
        """Why Triton must be started again, in a word and in many; two empty texts where it need not."""
        now = time.monotonic()
        cause, why = triton.ailment()
        self._stopped_since = (self._stopped_since or now) if cause == STOPPED else None
        if cause == DIED:
            return DIED, why
        if self._stopped_since is not None:
            # It may go on by itself, and cannot answer before it does.
            return (STOPPED, why) if now - self._stopped_since > STOPPED_FOR else ("", "")
        if not ready:
            late = now - triton.started_at > START_LIMIT
            return ("hung", f"Triton was not ready after {START_LIMIT:g} s") if late else ("", "")
        return examination.verdict()

    def _stop(self, triton: Triton, *, ready: bool) -> None:
        """End Triton when nobody needs it any more."""
        deadline = time.monotonic() + DRAIN_LIMIT
        reason = "the service has been told to stop"
        while ready and not health.nobody_needs_triton(self._file) and time.monotonic() < deadline:
            self._tell("stopping", reason)
            # Without the process that BentoML knows there is nobody left to wait for.
            if os.getppid() != self._parent or triton.exit_status() is not None:
                break
            time.sleep(0.05)
        self._tell("stopping", reason)
        if ready:
            triton.stop()
        else:
            triton.kill()  # Triton ends in its own way only once it has loaded everything
        self._tell("stopped", reason)

    def _keep_service_whole(self) -> None:
        """Mend what BentoML does not look at: the folder that the processes share, and stopped API workers."""
        try:
            if health.restore_run_dir(self._folder):
                logger.warning("%s was removed while the service runs: it is made again", self._folder)
        except OSError as error:
            if not self._folder_is_lost:
                logger.error("%s was removed while the service runs and cannot be made again: %s", self._folder, error)
            self._folder_is_lost = True
        else:
            self._folder_is_lost = False
        self._workers.kill_stopped()

    def _told_to_stop(self, seconds: float) -> bool:
        """Wait for a signal that ends the watchdog; a child's end wakes it early."""
        found = signal.sigtimedwait([*ENDS, signal.SIGCHLD], seconds)
        # After a SIGCONT, Python 3.11 hands out a record of nothing.
        return (found is not None and found.si_signo in ENDS) or os.getppid() != self._parent

    def _tell(self, state: State, reason: str = "") -> None:
        """Write down how it is, and log what is new."""
        if (state, reason) != self._last and state in {"ready", "failing"}:
            if reason:
                logger.warning("Triton is %s: %s", state, reason)
            else:
                logger.info("Triton is %s", state)
        self._last = (state, reason)
        # Of a service that was killed there are no readers, nor is there the file.
        with contextlib.suppress(OSError):
            health.write_health(self._file, Health(state, reason, dict(self._restarts)))


def main(command: Sequence[str]) -> int:
    """Run the watchdog; returns the exit status.

    Args:
        command: the real server with its arguments.
    """
    logging.basicConfig(
        format="%(asctime)s [%(levelname)s] [triton watchdog] %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S%z",
        level=logging.INFO,
    )
    log_as_set("triton watchdog")
    if shutil.which(command[0]) is None:
        print(f"error: {command[0]} is not there or cannot be run", file=sys.stderr)
        return 1
    processes.die_with_parent(os.getppid())
    outer, manager = os.getpid(), os.getppid()
    inner = os.fork()
    if inner == 0:
        processes.die_with_parent(outer)
        os._exit(Watchdog(command, health.shared_file(), health.run_dir(), outer, manager).run())

    def forward(signum: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(inner, signum)

    signal.signal(signal.SIGTERM, forward)
    signal.signal(signal.SIGINT, forward)
    return os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1])
