"""Small disks and shared memory that a test can fill."""

import contextlib
import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import Server
from harness.server import SHARED_MEMORY

NAMESPACES = (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"])
"""Commands that run another in a mount namespace: as superuser, and as another user if the
kernel allows it."""
MEGABYTE = 2**20


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int, option: str = "exec") -> Iterator[Path]:
    """Mount a disk of this size on a new folder, or skip the test if mounting is not allowed."""
    folder.mkdir()
    command = [
        "mount",
        "-t",
        "tmpfs",
        "-o",
        f"size={megabytes}m,mode=1777,{option}",
        "none",
        str(folder),
    ]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip("mounting a disk is not allowed here")
    try:
        yield folder
    finally:
        # A stopping service may still use the disk: unmount it lazily.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Write a file until the disk is full; return its path."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
    return path


def own_shared_memory(megabytes: int) -> list[str] | None:
    """Return a command that runs another with shared memory of its own, or None if mounting is
    not allowed.
    """
    mount = f'mount -t tmpfs -o size={megabytes}m,mode=1777 tmpfs {SHARED_MEMORY} && exec "$0" "$@"'
    for namespace in NAMESPACES if shutil.which("unshare") else ():
        command = [*namespace, "sh", "-c", mount]
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            return command
    return None


@contextlib.contextmanager
def full_shared_memory(server: Server) -> Iterator[None]:
    """Fill a service's own shared memory except for a megabyte; free it at the end."""
    seen = Path(f"/proc/{server.process.pid}/root{SHARED_MEMORY}")
    assert seen.stat().st_dev != SHARED_MEMORY.stat().st_dev, f"{seen} is not the service's own"
    filler = fill(seen)
    try:
        os.truncate(filler, filler.stat().st_size - MEGABYTE)
        yield
    finally:
        filler.unlink()
