"""How Triton is, as its watchdog writes it down and the API workers read it; and who still needs it.

All processes of one running service share two things, named by environment variables that they inherit:

- a file in memory, which the first process holds open and the others open by its descriptor. No cleaner of temporary
  folders reaches it, and no full disk. Its content is the record of what the watchdog last found, replaced twice a
  second. Its lock is held (shared) by every API worker that may still have requests in Triton: the watchdog stops
  Triton only when it can hold the lock alone; the kernel releases the locks of a process that was killed.
- a folder, for what needs names: sockets of BentoML's process manager, files of metrics. The watchdog makes it again
  where it was removed.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import itertools
import json
import os
import shutil
import struct
import tempfile
import time
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from utils import processes

VARIABLE = "MOBILE_SAM_TRITON_RUN_DIR"
FILE_VARIABLE = "MOBILE_SAM_TRITON_SHARED_FILE"
PREFIX = "mobile-sam-triton-"
METRICS = "metrics"
"""Folder in that of the service."""
STALE_AFTER = 5.0
"""Seconds after which a record says nothing of now: the watchdog writes twice a second."""
HEAD = struct.Struct("<II")
"""Length of the record that follows in bytes, and its CRC-32."""
SLOT_BYTES = 32_768
SLOTS = (0, SLOT_BYTES)
"""Offsets of the last two records: while one is replaced, the other is whole."""
MAX_REASON = 2000
"""Characters, of which each takes twelve bytes of a record at most."""
READS = 5
"""Attempts to read a record, should both be replaced during one."""

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
    watchdog: tuple[int, int] = (0, 0)
    """Process id and start time of the process that wrote the record."""

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
    # Held open for life. Cleaners that follow systemd's rules leave a locked folder alone.
    fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_SH)
    return folder


def restore_run_dir(folder: Path) -> bool:
    """Make the folder again where it was removed; whether it had to be.

    Raises:
        OSError: it cannot be made.
    """
    restored = False
    for path in (folder, folder / METRICS):
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
            restored = True
    return restored


def shared_file() -> Path:
    """Return the file in memory of this service; the process that first asks makes it and holds it open for life."""
    if FILE_VARIABLE not in os.environ:
        os.environ[FILE_VARIABLE] = f"/proc/{os.getpid()}/fd/{os.memfd_create('mobile-sam-triton')}"
    return Path(os.environ[FILE_VARIABLE])


def remove_stale_run_dirs() -> None:
    """Remove the folders of services that were killed before they could."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        owner = folder.name.removeprefix(PREFIX).partition("-")[0]
        # A container's first process has the number that the one before the restart had.
        of_an_earlier_self = owner == str(os.getpid()) and str(folder) != os.environ.get(VARIABLE)
        if not owner.isdigit() or (Path(f"/proc/{owner}").exists() and not of_an_earlier_self):
            continue
        with contextlib.suppress(OSError):
            # In another container that shares the folder a process may hold it which cannot be seen from here.
            descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)


_next_slot = itertools.cycle(SLOTS)


def write_health(file: Path, health: Health) -> None:
    """Replace the record.

    Raises:
        OSError: the process that made the file has ended.
    """
    writer = (os.getpid(), processes.start_time(os.getpid()))
    found = {**asdict(health), "reason": health.reason[:MAX_REASON], "written_at": time.monotonic(), "watchdog": writer}
    record = json.dumps(found).encode()
    os.pwrite(_descriptor(file), HEAD.pack(len(record), zlib.crc32(record)) + record, next(_next_slot))


def read_health(file: Path) -> Health:
    """Return what the watchdog last found; `starting` before it first wrote, another state where it no longer does."""
    try:
        record = _read_record(file)
    except OSError as error:
        return Health("failing", f"nothing is known of Triton: {error}")
    if record is None:
        return Health("starting", "Triton is being started")
    health = Health(**record)
    if health.state == "stopped":
        return health
    pid, started = health.watchdog
    if processes.start_time(pid) != started:
        return Health("restarting", "its watchdog has ended, and Triton with it", health.restarts)
    if time.monotonic() - health.written_at > STALE_AFTER:
        return Health("failing", "nothing is known of Triton: its watchdog does not answer", health.restarts)
    return health


class RequestsLock:
    """A worker's hold on Triton."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("a")
        fcntl.flock(self._file, fcntl.LOCK_SH)

    def release(self) -> None:
        """Triton is no longer needed here."""
        self._file.close()


def nobody_needs_triton(file: Path) -> bool:
    """Whether no worker holds the lock."""
    try:
        with file.open("a") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # the process that made the file is gone, and the service with it
        return True
    return True


@functools.cache
def _descriptor(file: Path) -> int:
    """Open the file for records; who has read one can read on when the process that made the file has ended."""
    return os.open(file, os.O_RDWR | os.O_CREAT, 0o600)


def _read_record(file: Path) -> dict[str, Any] | None:
    """Return the newest record, None where none was written yet.

    Raises:
        OSError: the process that made the file has ended, or what it holds is no record.
    """
    descriptor = _descriptor(file)
    if not os.fstat(descriptor).st_size:
        return None
    for _ in range(READS):
        records: list[dict[str, Any]] = []
        for offset in SLOTS:
            data = os.pread(descriptor, SLOT_BYTES, offset).ljust(HEAD.size, b"\0")
            length, checksum = HEAD.unpack_from(data)
            record = data[HEAD.size : HEAD.size + length]
            if len(record) == length > 0 and zlib.crc32(record) == checksum:
                records.append(json.loads(record))
        if records:
            return max(records, key=lambda record: float(record["written_at"]))
    raise OSError(
        f"expected a record in {file}, got {os.fstat(descriptor).st_size} bytes of which no checksum is right"
    )
