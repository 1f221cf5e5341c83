"""A service of one's own for the time of one command, from the project's checkout."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mobile_sam_client._commands.failures import CommandError
from mobile_sam_client._commands.output import tell_aside, waiting
from mobile_sam_client._commands.readiness import readiness

MARKS = ("service.py", "Makefile", "model_repository")
"""What a checkout has in its folder."""
HOST = "127.0.0.1"
START_LIMIT = 1200
"""Seconds: the first start installs what the service needs."""
STOP_LIMIT = 60
"""Seconds: the service itself finishes within 40."""
KILL_LIMIT = 10
"""Seconds: for what the system does with a killed process."""
PACE = 0.1
"""Seconds between two looks at the service."""

# A process beside `make` waits for the end of the pipe that this command holds, which comes too when this command is
# killed, and then ends all of the session: no service is left without an owner.
SCRIPT = 'exec 3<&0; (read -r _ <&3; kill -TERM 0) & exec "$@" </dev/null 3<&-'


class DidNotStart(CommandError):
    """The service ended before it was ready, or takes too long."""


def find_checkout() -> Path:
    """The project's checkout: this folder, or the one that this package is installed from.

    Raises:
        CommandError: neither is one.
    """
    here = Path.cwd()
    for folder in (here, Path(__file__).resolve().parents[3]):
        if all((folder / mark).exists() for mark in MARKS):
            return folder
    raise CommandError(
        f"--local expected this folder to be the project's checkout, with {', '.join(MARKS)}; {here} is not: go there, "
        "or give the --url of a service that runs"
    )


@contextmanager
def local_service() -> Iterator[str]:
    """Start a service on a free port of this machine, and end it at the end of the block, whatever happens there.

    Yields:
        Its URL.

    Raises:
        CommandError: there is no checkout or no make.
        DidNotStart: the service does not start; the message names its log.
    """
    checkout = find_checkout()
    make = shutil.which("make")
    if make is None:
        raise CommandError("--local expected `make` on PATH, and found none")
    port = _free_port()
    # Where a proxy is set, what is on this machine goes past it.
    past_proxy = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    os.environ["no_proxy"] = f"{past_proxy},{HOST}"
    number, name = tempfile.mkstemp(prefix="mobile-sam-", suffix=".log")
    log = Path(name)
    with os.fdopen(number, "wb") as output:
        service = subprocess.Popen(
            ["/bin/sh", "-c", SCRIPT, "sh", make, "-C", checkout, "serve", f"HOST={HOST}", f"PORT={port}"],
            env={name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    url = f"http://{HOST}:{port}"
    told = False
    try:
        with waiting(f"Starting a service here; its log is {log}"):
            _wait_until_ready(service, url, log)
        yield url
    except DidNotStart:
        told = True
        raise
    finally:
        ended_by_itself = service.poll() is not None
        try:
            _end(service)
        finally:
            if ended_by_itself and not told:
                tell_aside(f"the service ended before its time; its log is {log}")
            elif not told:
                log.unlink(missing_ok=True)


def _wait_until_ready(service: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT
    while not readiness(url, timeout=5).ready:
        if service.poll() is not None:
            raise DidNotStart(f"the service did not start: {_last_words(log)}; its log is {log}")
        if time.monotonic() > deadline:
            raise DidNotStart(f"the service was not ready within {START_LIMIT} s; its log is {log}")
        time.sleep(PACE)


def _last_words(log: Path) -> str:
    """What a log says went wrong: its last line that says so, or else its last."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (errors or lines or ["it said nothing"])[-1]


def _end(service: subprocess.Popen[bytes]) -> None:
    """End all processes of the service's session, in order; at a second Ctrl-C, or after the limit, at once."""
    assert service.stdin is not None
    with suppress(BrokenPipeError):
        service.stdin.close()
    try:
        _wait_for_the_end(service, STOP_LIMIT)
    finally:
        for process in _left(service):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        _wait_for_the_end(service, KILL_LIMIT)
        with suppress(subprocess.TimeoutExpired):
            service.wait(KILL_LIMIT)


def _wait_for_the_end(service: subprocess.Popen[bytes], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while _left(service) and time.monotonic() < deadline:
        time.sleep(PACE)


def _left(service: subprocess.Popen[bytes]) -> list[int]:
    """The living processes of the service's session; those that ended and wait for their parent do not count."""
    service.poll()
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            # The second member is the program's name, in brackets and perhaps with some in it.
            state, _, _, session = status.read_text(errors="replace").rpartition(")")[2].split()[:4]
            if int(session) == service.pid and state != "Z":
                found.append(int(status.parent.name))
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port
