"""How Triton is, as its watchdog writes it down and the API workers read it; and who still needs it.

All processes of one running service share a folder, named by an environment variable that they inherit:

- `health.json`: what the watchdog last found, replaced twice a second;
- `requests.lock`: held (shared) by every API worker that may still have requests in Triton. The watchdog stops Triton
  only when it can hold the lock alone; the kernel lets go of the locks of a process that was killed.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

VARIABLE = "MOBILE_SAM_TRITON_RUN_DIR"
PREFIX = "mobile-sam-triton-"
STALE_AFTER = 5.0
"""Seconds after which a record says nothing of now: the watchdog writes twice a second."""

State = Literal["starting", "ready", "failing", "restarting", "stopping", "stopped"]


@dataclass(frozen=True)
class Health:
    """What the watchdog found."""

    state: State
    """`ready`: every model has answered an inference of late. `failing`: one has not, but Triton may still answer.
    `starting`, `restarting`: it does not yet. `stopping`, `stopped`: it was told to end."""
    reason: str = ""
    """Why it is not ready."""
    restarts: Mapping[str, int] = field(default_factory=dict)
    """How often Triton was started again, by cause."""
    written_at: float = 0.0
    """On the system's monotonic clock, which all processes share."""

    @property
    def ready(self) -> bool:
        """Whether every model works."""
        return self.state == "ready"

    @property
    def stopping(self) -> bool:
        """Whether it was told to end."""
        return self.state in {"stopping", "stopped"}

    @property
    def takes_requests(self) -> bool:
        """Whether it is worth sending Triton anything."""
        return self.state in {"ready", "failing"}


def run_dir() -> Path:
    """The folder of this service; made, and removed at the end, by the process that first asks."""
    inherited = os.environ.get(VARIABLE)
    if inherited:
        return Path(inherited)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    os.environ[VARIABLE] = str(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def remove_stale_run_dirs() -> None:
    """Remove the folders of services that were killed before they could."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        owner = folder.name.removeprefix(PREFIX).partition("-")[0]
        # In another container that shares the folder a process may live which cannot be seen from here.
        lock = _lock_file(folder)
        if not owner.isdigit() or not lock.exists():
            continue
        # A container's first process has the number that the one before the restart had.
        of_an_earlier_self = int(owner) == os.getpid() and str(folder) != os.environ.get(VARIABLE)
        if Path(f"/proc/{owner}").exists() and not of_an_earlier_self:
            continue
        with lock.open() as file, contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


def write_health(folder: Path, health: Health) -> None:
    """Replace the record, so that no reader sees half of it.

    Raises:
        OSError: the folder is gone, or the disk is full.
    """
    record = folder / "health.json"
    fresh = record.with_suffix(".new")
    fresh.write_text(json.dumps({**asdict(health), "written_at": time.monotonic()}))
    fresh.replace(record)


def read_health(folder: Path) -> Health:
    """What the watchdog last found; `starting` before it first wrote, `failing` where it no longer does."""
    try:
        health = Health(**json.loads((folder / "health.json").read_text()))
    except FileNotFoundError:
        return Health("starting", "Triton is being started")
    if health.state != "stopped" and time.monotonic() - health.written_at > STALE_AFTER:
        return Health("failing", "nothing is known of Triton: its watchdog does not answer", health.restarts)
    return health


class RequestsLock:
    """A worker's hold on Triton."""

    def __init__(self, folder: Path) -> None:
        self._file = _lock_file(folder).open("a")
        fcntl.flock(self._file, fcntl.LOCK_SH)

    def release(self) -> None:
        """Triton is no longer needed here."""
        self._file.close()


def nobody_needs_triton(folder: Path) -> bool:
    """Whether no worker holds the lock."""
    try:
        with _lock_file(folder).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # the folder is gone, and the service with it
        return True
    return True


def _lock_file(folder: Path) -> Path:
    return folder / "requests.lock"
