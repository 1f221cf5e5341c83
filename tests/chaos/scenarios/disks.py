"""Full disks, full shared memory, and temporary folders removed under the running service.

The service gets small disks of its own in a mount namespace.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.chaos import victims
from tests.chaos.callers import Outcomes, click, crowd, mixed
from tests.chaos.figures import MEGABYTE, Figure, Start, port_of, restarts, unexpected_outcomes
from tests.chaos.innocent import InnocentCaller
from tests.chaos.request_space import image_file
from tests.e2e.server import Server

NAMESPACES = (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"])
"""Commands that run another in a mount namespace: as superuser, and as another user if the kernel allows it."""
ODD = [
    (path, body)
    for path in ("/mobile_sam", "/embed", "/everything", "/nowhere", "/docs.json", "/readyz")
    for body in (b"", b"{", b"{}", b'{"image_id": "' + b"0" * 64 + b'"}', b'{"input_image": "AAAA"}')
]
"""Requests whose answers the service's metrics count under many different labels."""
MAX_DETECTION_S = 10.0
"""Time after which readiness must be right: the watchdog's own inferences notice the fault."""


def full_temporary_folder(start: Start, seconds: float = 15) -> Iterator[Figure]:
    """Fill the temporary folder."""
    with TemporaryDirectory() as folder:
        yield from _on_full_disk(start, "full temporary folder", Path(folder), 64, seconds, TMPDIR=folder)


def full_cache(start: Start, seconds: float = 15) -> Iterator[Figure]:
    """Fill the disk of the cache and its embeddings."""
    with TemporaryDirectory() as folder:
        settings = {"MOBILE_SAM_CACHE_DIR": folder, "MOBILE_SAM_EMBEDDING_CACHE_DIR": f"{folder}/embeddings"}
        yield from _on_full_disk(start, "full cache disk", Path(folder), 1024, seconds, **settings)


def _on_full_disk(
    start: Start, name: str, folder: Path, megabytes: int, seconds: float, **settings: str
) -> Iterator[Figure]:
    if (through := _disk_at(folder, megabytes)) is None:
        yield Figure(f"{name}: not run: mounting is not allowed", "runs", 0, 1, at_least=True)
        return
    with start(through=through, **settings) as server:
        innocent = InnocentCaller(server, alone_s=3)
        workers = victims.workers(server)
        new_images = mixed(images=1, new=1.0, prepared=20)
        port, odd = port_of(server), itertools.cycle(ODD)
        others, refused = crowd(port, new_images, 1, pause=0.5), crowd(port, lambda: next(odd), 1, pause=0.1)
        with _full(server, folder), innocent.clicking(), others as answered, refused as problems:
            time.sleep(seconds)
            ready = victims.readiness(server)
        yield from innocent.figures(name)
        yield from unexpected_outcomes(f"{name}, new images", answered, {"ok"})
        yield Figure(f"{name}, odd requests", f"faults of {len(problems.all)}", len(problems.faults()), 0)
        yield Figure(name, "ready while full", abs(ready - 200), 0)
        yield Figure(name, "workers that died", len(set(workers) - set(victims.workers(server))), 0)
        yield Figure(name, "restarts of Triton", restarts(server), 0)


def full_shared_memory(start: Start, seconds: float = 25) -> Iterator[Figure]:
    """Fill shared memory except for a megabyte."""
    name = "full shared memory"
    shm = victims.SHARED_MEMORY
    if (through := _disk_at(shm, 1024)) is None:
        yield Figure(f"{name}: not run: mounting is not allowed", "runs", 0, 1, at_least=True)
        return
    with start(through=through) as server:
        innocent = InnocentCaller(server, alone_s=3)
        workers = victims.workers(server)

        large = click(image_file(1200, 1200, "PNG", "noise"))
        untrue, asked = 0, 0
        with innocent.clicking() as small, crowd(port_of(server), lambda: large, 1, pause=0.5) as outcomes:
            with _full(server, shm, left=MEGABYTE):
                until = time.monotonic() + seconds
                time.sleep(MAX_DETECTION_S)
                while time.monotonic() < until:
                    before = len(outcomes.all)
                    ready = victims.readiness(server) == 200
                    victims.until(lambda before=before: len(outcomes.all) >= before + 2, 60)  # type: ignore[misc]
                    refused = not any(outcome.ok for outcome in outcomes.all[before:])
                    asked, untrue = asked + 1, untrue + (ready and refused)
            freed = time.monotonic()
            well = victims.until(lambda: victims.readiness(server) == 200, 60)
            time.sleep(5)
        yield from unexpected_outcomes(f"{name}, clicks", small, {"ok", "inference-unavailable", "overloaded"})
        yield from unexpected_outcomes(f"{name}, large images", outcomes, {"ok", "inference-unavailable", "overloaded"})
        yield Figure(name, f"checks of {asked} that were ready although images were refused", untrue, 0)
        yield Figure(name, "ready again after", well, 30, "s")
        later = Outcomes([*small.after(freed + well).all, *outcomes.after(freed + well).all])
        yield from unexpected_outcomes(f"{name}, afterwards", later, {"ok"})
        yield Figure(name, "answers afterwards", len(later.answered()), 2, at_least=True)
        yield Figure(name, "workers that died", len(set(workers) - set(victims.workers(server))), 0)


def cleaned_folders(start: Start, seconds: float = 10) -> Iterator[Figure]:
    """Remove all of the service's temporary folders, then stop it under load."""
    name = "temporary folders removed"
    with TemporaryDirectory() as folder, start(TMPDIR=folder) as server:
        innocent = InnocentCaller(server, alone_s=3)
        removed = list(Path(folder).iterdir())
        for entry in removed:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        wrong = 0
        with innocent.clicking():
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                wrong += victims.readiness(server) != 200
                time.sleep(0.2)
        yield from innocent.figures(f"{name} ({len(removed)})")
        yield Figure(name, "probes without a 200", wrong, 0)
        with crowd(port_of(server), mixed(images=4, prepared=30), 6) as outcomes:
            victims.until(lambda: len(outcomes.answered()) >= 20, 30)
            server.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.process.wait(60)
        yield from unexpected_outcomes(f"{name}, then SIGTERM under load", outcomes, {"ok", "stopping", "refused"})


def _disk_at(folder: Path, megabytes: int) -> list[str] | None:
    """Return a command that runs another with a small disk mounted at `folder`, or None if that is not allowed."""
    mount = f'mount -t tmpfs -o size={megabytes}m,mode=1777 tmpfs "$0" && exec "$@"'
    for namespace in NAMESPACES if shutil.which("unshare") else ():
        command = [*namespace, "sh", "-c", mount, str(folder)]
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            return command
    return None


@contextmanager
def _full(server: Server, folder: Path, left: int = 0) -> Iterator[None]:
    """Fill a disk of the service's own except for `left` bytes; free it at the end."""
    seen = Path(f"/proc/{server.process.pid}/root{folder}")
    disk = os.statvfs(seen)
    assert disk.f_frsize * disk.f_blocks <= 1024 * MEGABYTE, f"{folder} is not a disk of the service's own"
    filler = seen / "filler"
    try:
        with filler.open("wb", buffering=0) as file:
            free = disk.f_frsize * disk.f_bavail - left
            try:
                while free > 0:
                    free -= file.write(bytes(min(free, MEGABYTE)))
                while left == 0:
                    file.write(bytes(4096))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
        yield
    finally:
        filler.unlink(missing_ok=True)
