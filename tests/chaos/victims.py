"""The processes of a running service, by what they do."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import requests

from tests.e2e.server import Server

SHARED_MEMORY = Path("/dev/shm")


def family(server: Server) -> list[psutil.Process]:
    """All of them, the one that was started included."""
    main = psutil.Process(server.process.pid)
    return [main, *main.children(recursive=True)]


def triton(server: Server) -> psutil.Process:
    """The real server, below the watchdog."""
    return _the(server, lambda process: process.name() == "tritonserver")[0]


def stubs(server: Server, model: str = "") -> list[psutil.Process]:
    """The processes of a Python model, or of all."""
    return _the(
        server,
        lambda process: (
            process.name().startswith("triton_python") and f"/{model}/1/" in " ".join(process.cmdline())
            if model
            else process.name().startswith("triton_python")
        ),
    )


def workers(server: Server) -> list[psutil.Process]:
    """The API workers."""
    return _the(server, lambda process: "http_api_server" in " ".join(process.cmdline()))


def _the(server: Server, wanted: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    found = []
    for process in family(server):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE and wanted(process):
                found.append(process)
    return found


def left_over(processes: list[psutil.Process], seconds: float) -> list[str]:
    """Which of them still live after a while."""
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    return [" ".join(process.cmdline())[:100] for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def regions(server: Server) -> list[Path]:
    """Shared memory of the service."""
    return [entry for entry in SHARED_MEMORY.iterdir() if f"_{server.process.pid}_" in entry.name]


def resident(processes: list[psutil.Process]) -> int:
    """Bytes of memory that processes hold for themselves."""
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += process.memory_info().rss
    return total


def memory(server: Server) -> int:
    """Bytes of memory of all its processes, each shared page counted once, and of its memory files."""
    total, files = 0, {}
    for process in family(server):
        with contextlib.suppress(OSError):
            rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
            total += 1024 * int(rollup.partition("\nPss:")[2].split()[0])
        # Nobody need have mapped them. Their device and inode tell those apart which several processes have open.
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{process.pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(entry.path).startswith("/memfd:"):  # noqa: PTH115
                        found = entry.stat()
                        files[found.st_dev, found.st_ino] = 512 * found.st_blocks
    return total + sum(files.values())


def shared_memory(server: Server) -> int:
    """Bytes of memory that its regions of shared memory take."""
    total = 0
    for region in regions(server):
        with contextlib.suppress(FileNotFoundError):
            total += 512 * region.stat().st_blocks
    return total


def readiness(server: Server) -> int:
    """The status of `/readyz`; 0 where there is no answer within 10 s."""
    try:
        return requests.get(f"{server.url}/readyz", timeout=10).status_code
    except requests.RequestException:
        return 0


def until(condition: Callable[[], bool], seconds: float, every: float = 0.05) -> float:
    """Seconds until a condition held; infinity where it did not in time."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            return float("inf")
        time.sleep(every)
    return time.monotonic() - began
