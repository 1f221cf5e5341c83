"""A lock between processes. Standard library only, Python 3.9."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(file: Path, waiting: str, report: Callable[[str], object]) -> Iterator[None]:
    """Hold the lock of a file, which the kernel releases if the process dies; report before
    waiting for another.
    """
    import fcntl  # noqa: PLC0415 - Windows has none, and gets a message

    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(waiting)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
