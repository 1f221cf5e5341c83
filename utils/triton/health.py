"""Health of Triton, written by its watchdog and read by the API workers, who report faults and hold a lock.

All are in the shared file of the run (`utils.triton.run`). The health record is replaced twice a second. Every API
worker with possible requests in Triton holds a shared lock on the file, and the watchdog stops Triton only once it gets
the exclusive lock. The kernel releases the locks of killed processes.
"""

import fcntl
import functools
import itertools
import json
import os
import struct
import time
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from utils.triton import processes

MAX_RECORD_AGE_S = 5.0
"""Age at which a record is stale; the watchdog writes twice a second."""
HEADER = struct.Struct("<II")
"""Length in bytes and CRC-32 of the record that follows."""
SLOT_BYTES = 32_768
SLOTS = (0, SLOT_BYTES)
"""Offsets of the last two records: while one is being replaced, the other is intact."""
FAULT = struct.Struct("<d")
"""Time of the last reported fault, on the system-wide monotonic clock, after the slots."""
MAX_REASON_CHARACTERS = 2000
"""Maximum length of a reason; each character takes at most twelve bytes of a record."""
MAX_READ_ATTEMPTS = 5
"""Attempts to read a record, in case both slots are replaced during one."""

State = Literal["starting", "ready", "failing", "restarting", "stopping", "stopped", "failed"]


@dataclass(frozen=True)
class Health:
    """Health of Triton, as found by the watchdog."""

    state: State
    """`ready`: every model has completed an inference recently. `failing`: one has not, but Triton may still answer.
    `starting`, `restarting`: Triton does not answer yet. `stopping`, `stopped`: the service is shutting down. `failed`:
    it does so because Triton cannot start."""
    reason: str = ""
    """Reason for any state but `ready`."""
    restarts: Mapping[str, int] = field(default_factory=dict)
    """Number of restarts by cause."""
    version: str = ""
    """Triton's version, once it is known."""
    written_at: float = 0.0
    """Time of the record on the system-wide monotonic clock."""
    watchdog: tuple[int, int] = (0, 0)
    """Process id and start time of the writer."""

    @property
    def ready(self) -> bool:
        """Return whether every model works."""
        return self.state == "ready"

    @property
    def stopping(self) -> bool:
        """Return whether Triton is stopping or has stopped."""
        return self.ended or self.state == "stopping"

    @property
    def ended(self) -> bool:
        """Return whether Triton has ended and is not started again."""
        return self.state in {"stopped", "failed"}

    @property
    def accepts_requests(self) -> bool:
        """Return whether requests may be sent to Triton."""
        return self.state in {"ready", "failing"}


_next_slot = itertools.cycle(SLOTS)


def write_health(file: Path, health: Health) -> None:
    """Replace the health record; raise `OSError` if the process that created the file has exited."""
    fields = {
        **asdict(health),
        "reason": health.reason[:MAX_REASON_CHARACTERS],
        "written_at": time.monotonic(),
        "watchdog": (os.getpid(), processes.start_time(os.getpid())),
    }
    record = json.dumps(fields).encode()
    os.pwrite(_descriptor(file), HEADER.pack(len(record), zlib.crc32(record)) + record, next(_next_slot))


def read_health(file: Path) -> Health:
    """Return the current health; never a record of a watchdog that has exited or no longer writes."""
    try:
        record = _read_record(file)
    except OSError as error:
        return Health("failing", f"the health of Triton is unknown: {error}")
    if record is None:
        return Health("starting", "Triton is starting")
    health = Health(**record)
    if health.ended:
        return health
    pid, started = health.watchdog
    if processes.start_time(pid) != started:
        return replace(health, state="restarting", reason="the watchdog has exited, and Triton with it")
    if time.monotonic() - health.written_at > MAX_RECORD_AGE_S:
        return replace(health, state="failing", reason="the health of Triton is unknown: its watchdog does not respond")
    return health


def report_fault(file: Path) -> None:
    """Have the watchdog restart Triton, which took a model's process for dead.

    It does so if the process did not run for a second, and frees the memory of its requests. If the process runs again,
    it writes to that memory, and its late answer can reach another request.
    """
    os.pwrite(_descriptor(file), FAULT.pack(time.monotonic()), SLOT_BYTES * len(SLOTS))


def is_fault_reported(file: Path, since: float) -> bool:
    """Return whether a fault was reported after a time on the system-wide monotonic clock."""
    data = os.pread(_descriptor(file), FAULT.size, SLOT_BYTES * len(SLOTS))
    return len(data) == FAULT.size and bool(FAULT.unpack(data)[0] > since)


class RequestsLock:
    """Shared lock of an API worker that may have requests in Triton."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("a")
        fcntl.flock(self._file, fcntl.LOCK_SH)

    def release(self) -> None:
        """Release the lock."""
        self._file.close()


def is_triton_unused(file: Path) -> bool:
    """Return whether no worker holds the lock."""
    try:
        with file.open("a") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # the process that created the file has exited, and the service with it
        return True
    return True


@functools.cache
def _descriptor(file: Path) -> int:
    """Open the shared file, once: an open descriptor outlives the process that created the file."""
    return os.open(file, os.O_RDWR | os.O_CREAT, 0o600)


def _read_record(file: Path) -> dict[str, Any] | None:
    """Return the newest record, or None before the first one.

    Raises:
        OSError: the process that created the file has exited, or the file has no valid record.
    """
    descriptor = _descriptor(file)
    if not os.fstat(descriptor).st_size:
        return None
    for _ in range(MAX_READ_ATTEMPTS):
        records: list[dict[str, Any]] = []
        for offset in SLOTS:
            data = os.pread(descriptor, SLOT_BYTES, offset).ljust(HEADER.size, b"\0")
            length, checksum = HEADER.unpack_from(data)
            record = data[HEADER.size : HEADER.size + length]
            if len(record) == length > 0 and zlib.crc32(record) == checksum:
                records.append(json.loads(record))
        if records:
            return max(records, key=lambda record: float(record["written_at"]))
    raise OSError(f"no valid record in the {os.fstat(descriptor).st_size} bytes of {file}")
