"""Full shared memory: the service gets its own, small one in a mount namespace."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import Server, seconds_until
from harness.load import Replies, crowd
from harness.server import SHARED_MEMORY
from tests.chaos.callers import click
from tests.chaos.figures import MEGABYTE, Figure, Start, died, not_run, unexpected_outcomes
from tests.chaos.innocent import InnocentCaller
from tests.chaos.request_space import image_file
from tests.small_disk import fill

NAMESPACES = (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"])
"""Commands that run another in a mount namespace: as superuser, and as another user if the kernel allows it."""
SIZE_MB = 1024
MAX_DETECTION_S = 10.0
"""Time after which readiness must be right: the watchdog's own inferences notice the fault."""
SHORTAGE_REASONS = {"ok", "inference-unavailable", "overloaded"}


def full_shared_memory(start: Start, seconds: float = 25) -> Iterator[Figure]:
    """Fill shared memory except for a megabyte."""
    name = "full shared memory"
    if (through := _own_shared_memory()) is None:
        yield not_run(name, "mounting is not allowed")
        return
    with start(through=through) as server:
        innocent = InnocentCaller(server)
        workers = server.workers()

        large = click(image_file(1200, 1200, "PNG", "noise"))
        untrue, asked = 0, 0
        with innocent.clicking() as small, crowd(server.port, lambda: large, 1, pause=0.5) as outcomes:
            with _full(server):
                until = time.monotonic() + seconds
                time.sleep(MAX_DETECTION_S)
                while time.monotonic() < until:
                    before = len(outcomes.all)
                    ready = server.readiness() == 200
                    seconds_until(lambda before=before: len(outcomes.all) >= before + 2, 60)  # type: ignore[misc]
                    refused = not any(outcome.ok for outcome in outcomes.all[before:])
                    asked, untrue = asked + 1, untrue + (ready and refused)
            freed = time.monotonic()
            well = seconds_until(lambda: server.readiness() == 200, 60)
            time.sleep(5)
        yield unexpected_outcomes(f"{name}, clicks", small, SHORTAGE_REASONS)
        yield unexpected_outcomes(f"{name}, large images", outcomes, SHORTAGE_REASONS)
        yield Figure(name, f"checks of {asked} that were ready although images were refused", untrue, 0)
        yield Figure(name, "ready again after", well, 30, "s")
        later = Replies([*small.after(freed + well).all, *outcomes.after(freed + well).all])
        yield unexpected_outcomes(f"{name}, afterwards", later, {"ok"})
        yield Figure(name, "answers afterwards", len(later.answered()), 2, at_least=True)
        yield died(name, server, workers)


def _own_shared_memory() -> list[str] | None:
    """Return a command that runs another with shared memory of its own, or None if mounting is not allowed."""
    mount = f'mount -t tmpfs -o size={SIZE_MB}m,mode=1777 tmpfs {SHARED_MEMORY} && exec "$0" "$@"'
    for namespace in NAMESPACES if shutil.which("unshare") else ():
        command = [*namespace, "sh", "-c", mount]
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            return command
    return None


@contextmanager
def _full(server: Server) -> Iterator[None]:
    """Fill the service's own shared memory except for a megabyte; free it at the end."""
    seen = Path(f"/proc/{server.process.pid}/root{SHARED_MEMORY}")
    disk = os.statvfs(seen)
    assert disk.f_frsize * disk.f_blocks <= SIZE_MB * MEGABYTE, f"{seen} is not the service's own"
    filler = fill(seen)
    try:
        os.truncate(filler, filler.stat().st_size - MEGABYTE)
        yield
    finally:
        filler.unlink()
