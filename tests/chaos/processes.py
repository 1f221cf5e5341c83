"""Memory, processor time and readiness of a running service."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import psutil

from harness import Server
from harness.server import proportional_bytes

Sample = TypeVar("Sample")


def left_over(processes: list[psutil.Process], seconds: float) -> list[str]:
    """Return the command lines of processes that are still alive after so many seconds."""
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    return [
        " ".join(process.cmdline())[:100]
        for process in alive
        if process.status() != psutil.STATUS_ZOMBIE
    ]


def memory(server: Server) -> int:
    """Return the service's memory in bytes: proportional set sizes and memory files."""
    return proportional_bytes(server.family()) + memory_files(server)


def memory_files(server: Server) -> int:
    """Return the size in bytes of memory files, which may be unmapped; several processes may
    have the same one open.
    """
    files = {}
    for process in server.family():
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{process.pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(entry.path).startswith("/memfd:"):  # noqa: PTH115
                        found = entry.stat()
                        files[found.st_dev, found.st_ino] = 512 * found.st_blocks
    return sum(files.values())


def shared_memory(server: Server) -> int:
    """Return the size of the service's shared memory regions in bytes."""
    total = 0
    for region in server.regions():
        with contextlib.suppress(FileNotFoundError):
            total += 512 * region.stat().st_blocks
    return total


def readiness_over(server: Server, seconds: float) -> list[bool]:
    """Return whether the service was ready, asked five times per second."""
    answers, over = [], time.monotonic() + seconds
    while time.monotonic() < over:
        answers.append(server.readiness() == 200)
        time.sleep(0.2)
    return answers


@contextmanager
def sampling(take: Callable[[], Sample], every: float) -> Iterator[list[Sample]]:
    """Call a function now and then until the context ends, once at least; yield its results so
    far.
    """
    samples, over = [take()], threading.Event()

    def sample() -> None:
        while not over.wait(every):
            with contextlib.suppress(psutil.Error):
                samples.append(take())

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        yield samples
    finally:
        over.set()
        sampler.join()
