"""Processes that end with their parent, and what /proc says of them. Linux only, as Triton is."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from pathlib import Path

PR_SET_PDEATHSIG = 1
"""Of prctl(2)."""
M_MMAP_THRESHOLD, LARGE_BYTES = -3, 128 * 1024
"""Of mallopt(3): blocks from this size on have pages of their own."""
LIBC = ctypes.CDLL(None)
DEAD = frozenset({"", "Z", "X"})
"""States of a process that has ended."""


def give_large_blocks_back() -> None:
    """Have the kernel get every large block of this process's memory back as soon as it is free.

    Left to itself, glibc soon takes blocks of up to 32 MB from its heap, which keeps those below one that is in use.
    """
    mallopt = getattr(LIBC, "mallopt", None)  # glibc's alone
    if mallopt:
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)


def trim() -> None:
    """Give the kernel back what is free between blocks of memory that are not."""
    malloc_trim = getattr(LIBC, "malloc_trim", None)  # glibc's alone
    if malloc_trim:
        malloc_trim(0)


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
    return _stat(pid)[0]


def start_time(pid: int) -> int:
    """Return when a process began, in clock ticks since the machine did; 0 where it has ended."""
    fields = _stat(pid)
    return 0 if fields[0] in DEAD else int(fields[19])


def children(pid: int) -> list[int]:
    """Return the process ids of a process's own children."""
    return [child for child, (parent, _) in _parents().items() if parent == pid]


def command_line(pid: int) -> str:
    """Return a process's program and arguments, separated by spaces; empty where it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def descendants(pid: int) -> dict[int, str]:
    """Names of all processes below one, by process id."""
    parents = _parents()
    found: dict[int, str] = {}
    layer = {pid}
    while layer:
        layer = {child for child, (parent, _) in parents.items() if parent in layer}
        found |= {child: parents[child][1] for child in layer}
    return found


def _parents() -> dict[int, tuple[int, str]]:
    """Return the parent and the name of every process."""
    parents: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                before, _, after = (entry / "stat").read_text().rpartition(")")
            except OSError:  # it has ended meanwhile
                continue
            parents[int(entry.name)] = (int(after.split()[1]), before.partition("(")[2])
    return parents


def _stat(pid: int) -> list[str]:
    """Return the fields of proc(5) from the third one, the state; one empty field where there is no such process."""
    try:
        # The second field is the name in brackets, which may hold anything.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() or [""]
    except OSError:
        return [""]
