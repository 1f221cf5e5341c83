"""A temporary service for one command, started from the project's checkout."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
from rich.console import Console

from mobile_sam_client._commands.output import CommandError, print_note

CHECKOUT_FILES = ("service.py", "Makefile", "model_repository")
"""Files that identify a checkout."""
HOST = "127.0.0.1"
START_TIMEOUT_S = 1200
"""The first start installs the service's dependencies."""
STOP_TIMEOUT_S = 60
"""The service itself shuts down within 40 s."""
KILL_TIMEOUT_S = 10
"""Time for the operating system to remove killed processes."""
POLL_INTERVAL_S = 0.1
SCRIPT = 'exec 3<&0; (read -r _ <&3; kill -TERM 0) & exec "$@" </dev/null 3<&-'
"""A background process waits for the end of the pipe held by this command and then terminates the process group, so
that no service is orphaned, even if this command is killed."""


def why_not_ready(url: str, timeout: float) -> str | None:
    """Return the answer of a service's `/readyz`, or the connection error; None if it is ready."""
    try:
        response = httpx.get(f"{url.rstrip('/')}/readyz", timeout=timeout)
    except httpx.HTTPError as error:
        return str(error) or type(error).__name__
    return None if response.status_code == httpx.codes.OK else " ".join(response.text.split())[:200]


class ServiceStartError(CommandError):
    """The service exited before it was ready, or takes too long."""


def serve_command(host: str, port: int) -> list[str]:
    """Return the command that serves the project's checkout: the current folder, or where this package comes from."""
    make, current = shutil.which("make"), Path.cwd()
    if make is None:
        raise CommandError("starting a service needs `make` on PATH")
    for folder in (current, Path(__file__).resolve().parents[3]):
        if all((folder / name).exists() for name in CHECKOUT_FILES):
            return [make, "--no-print-directory", "-C", str(folder), "serve", f"HOST={host}", f"PORT={port}"]
    raise CommandError(
        f"{current} is not the project's checkout ({', '.join(CHECKOUT_FILES)}); clone the project, and run "
        "`make serve` in it"
    )


def serve_environment() -> dict[str, str]:
    """Return the environment for `make`, without the settings of a `make` that runs this command."""
    return {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}}


@contextmanager
def local_service() -> Iterator[str]:
    """Run a service on a free port of this machine for the duration of the block, and yield its URL."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    url, command = f"http://{HOST}:{port}", serve_command(HOST, port)
    # Bypass proxies for this machine.
    no_proxy = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    os.environ["no_proxy"] = f"{no_proxy},{HOST}"
    with tempfile.NamedTemporaryFile(prefix="mobile-sam-", suffix=".log", delete=False) as output:
        log = Path(output.name)
        service = subprocess.Popen(
            ["/bin/sh", "-c", SCRIPT, "sh", *command],
            env=serve_environment(),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    with ExitStack() as stack:
        stack.callback(_stop, service)
        print_note(f"Starting a local service; its log is {log}")
        with Console(stderr=True).status("Starting"):  # only in a terminal
            _wait_until_ready(service, url, log)
        try:
            yield url
        finally:
            if service.poll() is None:
                log.unlink(missing_ok=True)
            else:
                print_note(f"the service exited unexpectedly; its log is {log}")


def _wait_until_ready(service: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while why_not_ready(url, timeout=5) is not None:
        if service.poll() is not None:
            lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
            errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
            reason = (errors or lines or ["its log is empty"])[-1]
            raise ServiceStartError(f"the service did not start: {reason}; its log is {log}")
        if time.monotonic() > deadline:
            raise ServiceStartError(f"the service was not ready within {START_TIMEOUT_S} s; its log is {log}")
        time.sleep(POLL_INTERVAL_S)


def _stop(service: subprocess.Popen[bytes]) -> None:
    """Terminate all processes of the service's session; kill them after a timeout or at a second Ctrl-C."""
    assert service.stdin is not None
    with suppress(BrokenPipeError):
        service.stdin.close()
    try:
        _wait_for_exit(service, STOP_TIMEOUT_S)
    finally:
        for pid in _live_processes(service):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _wait_for_exit(service, KILL_TIMEOUT_S)
        with suppress(subprocess.TimeoutExpired):
            service.wait(KILL_TIMEOUT_S)


def _wait_for_exit(service: subprocess.Popen[bytes], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while _live_processes(service) and time.monotonic() < deadline:
        time.sleep(POLL_INTERVAL_S)


def _live_processes(service: subprocess.Popen[bytes]) -> list[int]:
    """Return the ids of the service session's processes, without zombies."""
    service.poll()
    pids = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has just exited
            # The second field is the program's name in parentheses, and may contain parentheses.
            state, _, _, session = status.read_text(errors="replace").rpartition(")")[2].split()[:4]
            if int(session) == service.pid and state != "Z":
                pids.append(int(status.parent.name))
    return pids
