"""Full disks, full shared memory, and temporary folders removed under the running service.

The service gets small disks of its own in a mount namespace.
"""

import contextlib
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
from tests.chaos.figures import MEGABYTE, Figure, Start, died, not_run, restarts, unexpected_outcomes
from tests.chaos.innocent import InnocentCaller
from tests.chaos.request_space import image_file
from tests.e2e.server import Server
from tests.small_disk import fill

NAMESPACES = (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"])
"""Commands that run another in a mount namespace: as superuser, and as another user if the kernel allows it."""
MOUNTING_FORBIDDEN = "mounting is not allowed"
ODD = [
    (path, body)
    for path in ("/mobile_sam", "/embed", "/everything", "/nowhere", "/docs.json", "/readyz")
    for body in (b"", b"{", b"{}", b'{"image_id": "' + b"0" * 64 + b'"}', b'{"input_image": "AAAA"}')
]
"""Requests whose answers the service's metrics count under many different labels."""
MAX_DETECTION_S = 10.0
"""Time after which readiness must be right: the watchdog's own inferences notice the fault."""
SHORTAGE_REASONS = {"ok", "inference-unavailable", "overloaded"}


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
        yield not_run(name, MOUNTING_FORBIDDEN)
        return
    with start(through=through, **settings) as server:
        innocent = InnocentCaller(server)
        workers = victims.workers(server)
        new_images, odd = mixed(images=1, new=1.0, prepared=20), itertools.cycle(ODD)
        others, refused = (
            crowd(server.port, new_images, 1, pause=0.5),
            crowd(server.port, lambda: next(odd), 1, pause=0.1),
        )
        with _full(server, folder), innocent.clicking(), others as answered, refused as problems:
            time.sleep(seconds)
            ready = victims.readiness(server)
        yield from innocent.figures(name)
        yield unexpected_outcomes(f"{name}, new images", answered, {"ok"})
        yield Figure(f"{name}, odd requests", f"faults of {len(problems.all)}", problems.faults(), 0)
        yield Figure(name, "ready while full", abs(ready - 200), 0)
        yield died(name, server, workers)
        yield restarts(name, server)


def full_shared_memory(start: Start, seconds: float = 25) -> Iterator[Figure]:
    """Fill shared memory except for a megabyte."""
    name = "full shared memory"
    shm = victims.SHARED_MEMORY
    if (through := _disk_at(shm, 1024)) is None:
        yield not_run(name, MOUNTING_FORBIDDEN)
        return
    with start(through=through) as server:
        innocent = InnocentCaller(server)
        workers = victims.workers(server)

        large = click(image_file(1200, 1200, "PNG", "noise"))
        untrue, asked = 0, 0
        with innocent.clicking() as small, crowd(server.port, lambda: large, 1, pause=0.5) as outcomes:
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
        yield unexpected_outcomes(f"{name}, clicks", small, SHORTAGE_REASONS)
        yield unexpected_outcomes(f"{name}, large images", outcomes, SHORTAGE_REASONS)
        yield Figure(name, f"checks of {asked} that were ready although images were refused", untrue, 0)
        yield Figure(name, "ready again after", well, 30, "s")
        later = Outcomes([*small.after(freed + well).all, *outcomes.after(freed + well).all])
        yield unexpected_outcomes(f"{name}, afterwards", later, {"ok"})
        yield Figure(name, "answers afterwards", len(later.answered()), 2, at_least=True)
        yield died(name, server, workers)


def cleaned_folders(start: Start, seconds: float = 10) -> Iterator[Figure]:
    """Remove all of the service's temporary folders, then stop it under load."""
    name = "temporary folders removed"
    with TemporaryDirectory() as folder, start(TMPDIR=folder) as server:
        innocent = InnocentCaller(server)
        removed = list(Path(folder).iterdir())
        for entry in removed:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        with innocent.clicking():
            ready = victims.readiness_over(server, seconds)
        yield from innocent.figures(f"{name} ({len(removed)})")
        yield Figure(name, "probes without a 200", ready.count(False), 0)
        with crowd(server.port, mixed(images=4, prepared=30), 6) as outcomes:
            victims.until(lambda: len(outcomes.answered()) >= 20, 30)
            server.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.process.wait(60)
        yield unexpected_outcomes(f"{name}, then SIGTERM under load", outcomes, {"ok", "stopping", "refused"})


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
    filler = fill(seen)
    try:
        os.truncate(filler, filler.stat().st_size - left)
        yield
    finally:
        filler.unlink()
