"""Processes and memory of a running service."""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import psutil
import requests

from tests.e2e.server import Server

SHARED_MEMORY = Path("/dev/shm")
Sample = TypeVar("Sample")


def family(server: Server) -> list[psutil.Process]:
    """Return all processes of the service, the main process first."""
    main = psutil.Process(server.process.pid)
    return [main, *main.children(recursive=True)]


def triton(server: Server) -> psutil.Process:
    """Return the tritonserver process, below the watchdog."""
    return _those(server, lambda process: process.name() == "tritonserver")[0]


def stubs(server: Server, model: str = "") -> list[psutil.Process]:
    """Return the processes of a Python model, or of all Python models."""
    of_model = f"/{model}/1/" if model else ""
    return _those(
        server,
        lambda process: process.name().startswith("triton_python") and of_model in " ".join(process.cmdline()),
    )


def workers(server: Server) -> list[psutil.Process]:
    """Return the API workers."""
    return _those(server, lambda process: "http_api_server" in " ".join(process.cmdline()))


def _those(server: Server, wanted: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
    found = []
    for process in family(server):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE and wanted(process):
                found.append(process)
    return found


def left_over(processes: list[psutil.Process], seconds: float) -> list[str]:
    """Return the command lines of processes that are still alive after so many seconds."""
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    return [" ".join(process.cmdline())[:100] for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def cpu_seconds(processes: list[psutil.Process]) -> float:
    """Return the CPU time of the processes that are alive."""
    return sum(sum(process.cpu_times()[:2]) for process in processes if process.is_running())


def regions(server: Server) -> list[Path]:
    """Return the shared memory regions of the service."""
    return [entry for entry in SHARED_MEMORY.iterdir() if f"_{server.process.pid}_" in entry.name]


def resident(processes: list[psutil.Process]) -> int:
    """Return the sum of the processes' resident memory in bytes."""
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += process.memory_info().rss
    return total


def memory(server: Server) -> int:
    """Return the service's memory in bytes: proportional set sizes and memory files."""
    total, files = 0, {}
    for process in family(server):
        with contextlib.suppress(OSError):
            rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
            total += 1024 * int(rollup.partition("\nPss:")[2].split()[0])
        # Memory files may be unmapped; several processes may have the same one open.
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{process.pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(entry.path).startswith("/memfd:"):  # noqa: PTH115
                        found = entry.stat()
                        files[found.st_dev, found.st_ino] = 512 * found.st_blocks
    return total + sum(files.values())


def shared_memory(server: Server) -> int:
    """Return the size of the service's shared memory regions in bytes."""
    total = 0
    for region in regions(server):
        with contextlib.suppress(FileNotFoundError):
            total += 512 * region.stat().st_blocks
    return total


def readiness(server: Server) -> int:
    """Return the status of `/readyz`, or 0 if there is no answer within 10 s."""
    try:
        return requests.get(f"{server.url}/readyz", timeout=10).status_code
    except requests.RequestException:
        return 0


def until(condition: Callable[[], bool], seconds: float, every: float = 0.05) -> float:
    """Return the seconds until a condition holds, or infinity if it does not in time."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            return float("inf")
        time.sleep(every)
    return time.monotonic() - began


def readiness_over(server: Server, seconds: float) -> list[bool]:
    """Return whether the service was ready, asked five times per second."""
    answers, over = [], time.monotonic() + seconds
    while time.monotonic() < over:
        answers.append(readiness(server) == 200)
        time.sleep(0.2)
    return answers


@contextmanager
def sampling(take: Callable[[], Sample], every: float) -> Iterator[list[Sample]]:
    """Call a function now and then until the context ends, once at least; yield its results so far."""
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
