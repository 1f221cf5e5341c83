"""Watchdog of Triton: BentoML starts it as `tritonserver`, and it runs the real server.

BentoML alone restarts a dead Triton after ten seconds (in a container never). It does not notice a
hung Triton, nor one without its Python processes, which reports itself ready while every inference
fails. The watchdog

- checks before each start of Triton that the weights are those that the service started with;
- checks Triton's processes, the results of the engines at start-up, and every model without a
  recent request;
- publishes the health for `/readyz` and for the API workers (`utils.triton.health`);
- restarts Triton after it has died, lost a process, been stopped, or hung;
- stops the service with an error if Triton cannot start at all, for example because a model cannot
  be loaded;
- kills stopped API workers, so that BentoML starts others;
- on SIGTERM waits until no API worker has a request in Triton, then stops it.
"""

import contextlib
import logging
import os
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from orchestrator.memory import return_large_blocks_on_free
from utils import processes
from utils.observability.logs import configure_logging
from utils.triton import health
from utils.triton.health import Health, State
from utils.triton.release import age_warning, flags
from utils.triton.run import RunState, shared_memory_problem
from utils.triton.versions import Deployment
from utils.triton.watchdog import Timings
from utils.triton.watchdog.health_probes import HealthProbes
from utils.triton.watchdog.probes import LocalTriton
from utils.triton.watchdog.process import (
    DIED,
    FAILED,
    HUNG,
    LOG,
    STOPPED,
    RestartReason,
    TritonServer,
    Workers,
)

logger = logging.getLogger("watchdog")

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
STARTING = "Triton is starting"
STARTS = ("starting", "restarting")
STATES = "states of Triton"
"""Kind of log lines."""


class Watchdog:
    """Supervisor of Triton: starts, monitors, restarts and stops it."""

    def __init__(
        self, command: Sequence[str], run: RunState, manager: int, timings: Timings
    ) -> None:
        """Initialize without starting Triton.

        Args:
            command: the real server with its arguments, `--http-port=` among them.
            run: shared state of the service's processes.
            manager: process id of BentoML's process manager, which starts the API workers.
            timings: times to wait.
        """
        self._command, self._run, self._timings = command, run, timings
        self._file = run.health_file
        self._manager, self._workers = manager, Workers(manager)
        options = flags(command)
        self._local = LocalTriton(int(options["http-port"]), run.key_header, run.metrics_port)
        self._hang_timeout_s = run.timeout_s + timings.hang_margin_s
        self._models_change = options["model-control-mode"] != "none"
        self._deployment = (
            Deployment(Path(run.source), Path(options["model-repository"])) if run.source else None
        )
        self._restarts: Counter[str] = Counter()
        self._started_at = time.monotonic()
        self._last: tuple[State, str] = ("starting", STARTING)
        self._stopped_since: float | None = None
        self._attempts = 0
        self._was_ready = False
        self._version, self._encode_s = "", 0.0

    def run(self) -> int:
        """Keep Triton running until a stop signal; return the exit status."""
        # For threads started from now on too. NumPy's, which are older, end when the process forks.
        signal.pthread_sigmask(signal.SIG_BLOCK, [*STOP_SIGNALS, signal.SIGCHLD])
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        while True:
            cause = self._run_triton()
            if not cause:
                return 0
            self._restarts[cause] += 1
            delay = self._timings.restart_delays_s[: self._attempts + 1][-1]
            self._attempts += 1
            until = time.monotonic() + delay
            while time.monotonic() < until:
                self._publish(*self._last)  # readers reject a stale record
                if self._wait_for_stop(min(self._timings.tick_s, delay)):
                    self._publish("stopped")
                    return 0

    def _run_triton(self) -> str:
        """Run Triton once.

        Return the cause of a restart, or an empty string after a stop signal.
        """
        self._started_at = time.monotonic()
        self._publish(
            *(("restarting", "Triton is restarting") if self._restarts else ("starting", STARTING))
        )
        damage = self._check_weights()
        if damage is None:
            self._publish("stopped")
            return ""
        if damage:
            self._fail(
                f"the weights that this service started with were changed or removed: {damage};"
                " start it again"
            )
            return ""
        health.consume_fault(self._file)  # of the run before
        triton = TritonServer(
            self._command, self._run.shm_prefix, self._timings, models_change=self._models_change
        )
        probe_models, ready = self._run.probe_models, False
        probes = HealthProbes(
            self._local,
            self._hang_timeout_s,
            self._timings,
            models=probe_models,
            encode_s=self._encode_s,
        )
        try:
            while not self._wait_for_stop(
                self._timings.tick_s if ready else self._timings.tick_s / 2
            ):
                probes.update()
                self._repair_service()
                became_ready = not ready and probes.all_succeeded()
                if became_ready:
                    ready, self._was_ready, self._attempts = True, True, 0
                    triton.update_stubs()
                elif ready and self._models_change:
                    triton.update_stubs()
                if became_ready or (ready and not self._version):
                    self._read_version()
                reason = self._restart_reason(triton, probes, ready=ready)
                if reason and reason.cause == FAILED and not self._was_ready:
                    triton.kill()
                    self._fail(reason.detail)
                    return ""
                if reason:
                    LOG.log("restarts of Triton", f"restarting Triton: {reason.detail}")
                    self._publish("restarting", reason.detail)
                    triton.kill()
                    return reason.cause
                if ready:
                    self._encode_s = probes.encode_s
                    fault = triton.process_fault()
                    problem = fault.detail if fault else shared_memory_problem() or probes.problem()
                    self._publish("failing" if problem else "ready", problem)
                else:
                    self._publish(*self._last)
            self._stop(triton, ready=ready)
            return ""
        finally:
            probes.close()

    def _check_weights(self) -> str | None:
        """Return which file of the snapshot has changed, an empty string if none has, or None
        after a stop signal.
        """
        if self._deployment is None:
            return ""
        # In a thread, because gigabytes take seconds, and readers reject a stale health record.
        with ThreadPoolExecutor(1) as threads:
            checking = threads.submit(self._deployment.damage)
            while not checking.done():
                if self._wait_for_stop(self._timings.tick_s / 10):
                    return None
                self._publish(*self._last)
        return checking.result()

    def _read_version(self) -> None:
        """Read Triton's version, and log a warning once if it is old and can be reached from
        other machines.
        """
        was_known = bool(self._version)
        with contextlib.suppress(Exception):
            self._version = self._local.version(self._timings.tick_s)
        warning = "" if was_known else age_warning(self._version, self._command)
        if warning:
            logger.warning("%s", warning)

    def _restart_reason(
        self, triton: TritonServer, probes: HealthProbes, *, ready: bool
    ) -> RestartReason | None:
        """Return why Triton must be restarted, or None if it need not be."""
        now = time.monotonic()
        fault = triton.process_fault()
        self._stopped_since = (
            (self._stopped_since or now) if fault and fault.cause == STOPPED else None
        )
        if fault and fault.cause == DIED:
            error = "" if ready else triton.start_error()
            # On a busy machine another try may succeed; a process that ends by itself will end
            # again.
            overtaxed = health.is_stub_failure(error) and not self._attempts
            return RestartReason(DIED if overtaxed else FAILED, error) if error else fault
        if health.consume_fault(self._file) or probes.stub_presumed_dead():
            return RestartReason(DIED, "Triton took a model's process for dead")
        if self._stopped_since is not None:
            # The process may be continued; until then nothing answers.
            return fault if now - self._stopped_since > self._timings.stopped_grace_s else None
        if ready:
            return probes.restart_reason()
        if broken := probes.broken_engine():
            return RestartReason(FAILED, broken)
        if hung := triton.start_fault():
            return hung
        timeout_s = self._timings.start_timeout_s
        late = now - self._started_at > timeout_s
        return RestartReason(HUNG, f"Triton was not ready after {timeout_s:g} s") if late else None

    def _fail(self, reason: str) -> None:
        """Have BentoML stop the service, which then reports the reason, and wait for that."""
        self._publish("failed", reason)
        os.kill(self._manager, signal.SIGTERM)
        while not self._wait_for_stop(self._timings.tick_s):
            self._publish("failed", reason)

    def _stop(self, triton: TritonServer, *, ready: bool) -> None:
        """Stop Triton once no API worker needs it."""
        deadline = time.monotonic() + self._timings.drain_timeout_s
        reason = "the service is stopping"
        logger.info("stopping")
        self._publish("stopping", reason)
        while ready and not health.is_triton_unused(self._file) and time.monotonic() < deadline:
            if triton.exit_status() is not None:  # there is nothing to wait for
                break
            time.sleep(0.05)
            self._publish("stopping", reason)
        if ready:
            triton.stop()
        else:
            triton.kill()  # while it loads models, Triton ignores SIGTERM
        logger.info("Triton has stopped")
        self._publish("stopped", reason)

    def _repair_service(self) -> None:
        """Recreate a removed run folder and kill stopped API workers; BentoML does neither."""
        with contextlib.suppress(OSError):  # no room: the next check tries again
            if self._run.restore_folder():
                line = f"{self._run.folder} was removed while the service runs; recreated it"
                LOG.log("removed run folder", line, level=logging.WARNING)
        self._workers.kill_stopped()

    def _wait_for_stop(self, seconds: float) -> bool:
        """Wait, and return whether the watchdog must stop; a child's exit ends the wait early."""
        info = signal.sigtimedwait([*STOP_SIGNALS, signal.SIGCHLD], seconds)
        # After SIGCONT, Python 3.11 returns a zeroed record.
        return info is not None and info.si_signo in STOP_SIGNALS

    def _publish(self, state: State, reason: str = "") -> None:
        """Write the health record, and log changes of it."""
        LOG.summarise_ended(all_windows=state == "stopped")
        if (state, reason) != self._last and state in {"ready", "failing"}:
            if reason:
                LOG.log(STATES, f"Triton is {state}: {reason}", level=logging.WARNING)
            else:
                after = (
                    f" after {time.monotonic() - self._started_at:.0f} s"
                    if self._last[0] in STARTS
                    else ""
                )
                version = f" {self._version}" if after else ""
                LOG.log(STATES, f"Triton{version} is {state}{after}", level=logging.INFO)
        self._last = (state, reason)
        # After the service was killed, the file is gone, and so are its readers.
        with contextlib.suppress(OSError):
            restarts = dict(self._restarts)
            health.write_health(
                self._file, Health(state, reason, restarts, self._version, self._encode_s)
            )


def main(command: Sequence[str], timings: Timings | None = None) -> int:
    """Run the watchdog of a server, a command with its arguments; return the exit status."""
    logging.basicConfig(
        format="%(asctime)s [%(levelname)s] [triton watchdog] %(message)s",
        datefmt="%Y-%m-%dT%H:%M:%S%z",
        level=logging.INFO,
    )
    configure_logging("triton watchdog")
    return_large_blocks_on_free()  # of probes, which run in many threads
    if shutil.which(command[0]) is None:
        print(f"error: {command[0]} is missing or not executable", file=sys.stderr)
        return 1
    manager = os.getppid()
    processes.die_with_parent(manager)
    return Watchdog(command, RunState.current(), manager, timings or Timings()).run()
