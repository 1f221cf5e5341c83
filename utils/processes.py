"""Process control, and process states from /proc. Linux only, like Triton."""

import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil

PR_SET_PDEATHSIG = 1
"""Option of prctl(2)."""
LIBC = ctypes.CDLL(None)
DEAD = frozenset({"", "Z", "X"})
"""States of a process that has exited."""


def die_with_parent(parent: int) -> None:
    """Have the kernel send SIGTERM to this process when its parent exits for any reason, or now
    if it already has.
    """
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def raise_descriptor_limit() -> None:
    """Raise the file descriptor limit of this process and its future children to the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def state(pid: int) -> str:
    """Return the state of a process as in proc(5): `T` is stopped, `Z` a zombie, `R`, `S` and `D`
    alive.

    The state is empty if the process does not exist.
    """
    # Each request asks for it; `Path.read_text` takes four times as long.
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
        # The field before it, the name in parentheses, may contain any character.
        return file.read().rpartition(b") ")[2][:1].decode()
    return ""


def waits_for_child(pid: int) -> bool:
    """Return whether a thread of a process waits for the end of a child; False where the kernel
    does not tell.
    """
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                if (thread / "wchan").read_text() == "do_wait":
                    return True
    return False


def children(pid: int) -> Iterator[tuple[int, str, str]]:
    """Yield process id, name and command line of each child."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for child in psutil.Process(pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):  # it has exited meanwhile
                attributes = child.as_dict(["name", "cmdline"])
                yield child.pid, attributes["name"] or "", " ".join(attributes["cmdline"] or [])
