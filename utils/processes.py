"""Processes that end with their parent, and what /proc says of them. Linux only, as Triton is."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from pathlib import Path

PR_SET_PDEATHSIG = 1
"""Of prctl(2)."""
LIBC = ctypes.CDLL(None)


def die_with_parent(parent: int, signum: int = signal.SIGTERM) -> None:
    """Have the kernel send this process a signal when its parent ends, however it ends.

    Args:
        parent: the parent's process id, as it was when this process began; if it is gone already, the signal comes now.
        signum: which signal.
    """
    LIBC.prctl(PR_SET_PDEATHSIG, signum)
    if os.getppid() != parent:
        os.kill(os.getpid(), signum)


def raise_descriptor_limit() -> int:
    """Let this process, and those that it will start, have as many file descriptors as it may.

    Returns:
        The limit.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def state(pid: int) -> str:
    """The letter of proc(5): `R`, `S`, `D` for a process that works, `T` for one that was stopped, `Z` for a dead one.

    Returns:
        An empty string where there is no such process.
    """
    try:
        # The second field is the name in brackets, which may hold anything.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def descendants(pid: int) -> dict[int, str]:
    """Names of all processes below one, by process id."""
    parents: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                before, _, after = (entry / "stat").read_text().rpartition(")")
            except OSError:  # it has ended meanwhile
                continue
            parents[int(entry.name)] = (int(after.split()[1]), before.partition("(")[2])
    found: dict[int, str] = {}
    layer = {pid}
    while layer:
        layer = {child for child, (parent, _) in parents.items() if parent in layer}
        found |= {child: parents[child][1] for child in layer}
    return found
