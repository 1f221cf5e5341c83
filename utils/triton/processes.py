"""Process control, and process states from /proc. Linux only, like Triton."""

import ctypes
import os
import resource
import signal
from pathlib import Path

PR_SET_PDEATHSIG = 1
"""Option of prctl(2)."""
LIBC = ctypes.CDLL(None)
DEAD = frozenset({"", "Z", "X"})
"""States of a process that has exited."""


def die_with_parent(parent: int, signum: int = signal.SIGTERM) -> None:
    """Have the kernel signal this process when its parent exits for any reason.

    Args:
        parent: process id of the parent; if it has already exited, the signal is sent now.
        signum: the signal.
    """
    LIBC.prctl(PR_SET_PDEATHSIG, signum)
    if os.getppid() != parent:
        os.kill(os.getpid(), signum)


def raise_descriptor_limit() -> int:
    """Raise the file descriptor limit of this process and its future children to the hard limit.

    Returns:
        The new limit.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def state(pid: int) -> str:
    """Return the state of a process as in proc(5): `T` is stopped, `Z` a zombie, `R`, `S` and `D` alive.

    Returns:
        The state, or an empty string if the process does not exist.
    """
    return _stat(pid)[0]


def start_time(pid: int) -> int:
    """Return the start time of a process in clock ticks since boot; 0 after it has exited."""
    fields = _stat(pid)
    return 0 if fields[0] in DEAD else int(fields[19])


def children(pid: int) -> list[int]:
    """Return the process ids of the direct children."""
    return [child for child, (parent, _) in _parents().items() if parent == pid]


def command_line(pid: int) -> str:
    """Return program and arguments separated by spaces, or an empty string after the process has exited."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def descendants(pid: int) -> dict[int, str]:
    """Return the names of all descendants by process id."""
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
            except OSError:  # it has exited meanwhile
                continue
            parents[int(entry.name)] = (int(after.split()[1]), before.partition("(")[2])
    return parents


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third, the state; one empty field without such a process."""
    try:
        # The second field, the name in parentheses, may contain any character.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() or [""]
    except OSError:
        return [""]
