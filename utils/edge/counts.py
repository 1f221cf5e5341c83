"""CountTable of each caller's requests, in a file that the API workers of a machine share.

The file is a table in shared memory, and each request locks it for tens of microseconds. The kernel
releases the lock of a killed worker, and writes a count completely or not at all. A stopped worker
may keep the lock, so that nobody waits for it in the kernel: `CountTable.add` raises
`BlockingIOError`.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from limits import RateLimitItem

SLOT = struct.Struct("<12sIQII")
"""A count: digest of caller and length, length of the window in seconds, number of the current
window since the machine's start, requests in the window before it and in the current one. Pages
of memory hold whole slots."""
SLOTS_PER_BUCKET = 8
BUCKETS = 32_768
BUCKET_BYTES = SLOTS_PER_BUCKET * SLOT.size
MAX_COUNT = 2**32 - 1
CHECK_INTERVAL_S = 1.0
"""Time between two checks that the file is still the one with this name."""

Refusal = tuple[int, RateLimitItem]
"""Seconds until the next request is allowed, and the limit that is exceeded."""


class Slot(NamedTuple):
    """A count as it is in the table."""

    digest: bytes
    length_s: int
    window: int
    previous: int
    current: int

    @property
    def end(self) -> float:
        """Return the time from which the count is not needed any more."""
        return (self.window + 2) * self.length_s


@dataclass(frozen=True)
class Window:
    """Requests of one caller in the sliding window of one limit."""

    limit: RateLimitItem
    previous: int
    """Requests in the fixed window before the current one."""
    current: int
    rest_s: float
    """Time until the current fixed window ends."""

    def allows(self, count: int) -> bool:
        """Return whether further requests stay within the limit."""
        overlap = self.rest_s / self.limit.get_expiry()
        return math.floor(self.previous * overlap + self.current) + count <= self.limit.amount

    def wait_s(self, count: int) -> int:
        """Return the whole seconds until as many requests are allowed, if there are no others
        meanwhile.
        """
        length, below = self.limit.get_expiry(), self.limit.amount - count + 1
        if below <= 0:  # never
            return length
        # Of the previous window, the part counts that the last `length` seconds still cover.
        if self.current < below:
            rest = length * (below - self.current) / self.previous
            return math.floor(self.rest_s - rest) + 1
        return math.floor(self.rest_s + length - length * below / self.current) + 1


class CountTable:
    """A table of counts with bounded memory: beyond it, the oldest ones of a bucket go.

    It has 262,144 counts in 8 MB, of which only the used pages take memory. A caller has one count
    for each length of a limit's window.
    """

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        """Use a file, which is created at the first request; None for a table of this process
        alone.

        The clock is one of the machine, which all processes share and nobody sets: not that of the
        time of day.
        """
        self._path, self._clock = path, clock
        self._fd, self._next_check = -1, 0.0

    def add(self, caller: str, limits: Sequence[RateLimitItem], count: int) -> list[Refusal]:
        """Count requests of a caller in all limits, or in none if they exceed one; return the
        exceeded ones.

        Raises:
            BlockingIOError: another process has the lock.
            OSError: the file cannot be opened or written.
        """
        self._open()
        fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            return self._add(caller, limits, count)
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file; a further request opens it again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _add(self, caller: str, limits: Sequence[RateLimitItem], count: int) -> list[Refusal]:
        # Not before the lock: another process may have begun the next window meanwhile.
        now = self._clock()
        refusals: list[Refusal] = []
        changes: list[tuple[int, Slot]] = []
        for limit in limits:
            length = limit.get_expiry()
            digest = hashlib.blake2b(f"{length} {caller}".encode(), digest_size=12).digest()
            offset, stored = self._find(digest, now)
            number = int(now // length)
            previous, current = _counts(stored, digest, number)
            window = Window(limit, previous, current, (number + 1) * length - now)
            if window.allows(count):
                total = min(current + count, MAX_COUNT)
                changes.append((offset, Slot(digest, length, number, previous, total)))
            else:
                refusals.append((max(1, window.wait_s(count)), limit))
        if not refusals:
            for offset, slot in changes:
                os.pwrite(self._fd, SLOT.pack(*slot), offset)
        return refusals

    def _find(self, digest: bytes, now: float) -> tuple[int, Slot]:
        """Return the slot with a digest, or else the one to replace: an expired one, or the
        oldest of its bucket.
        """
        start = int.from_bytes(digest[:4], "little") % BUCKETS * BUCKET_BYTES
        bucket = os.pread(self._fd, BUCKET_BYTES, start)
        slots = [Slot(*fields) for fields in SLOT.iter_unpack(bucket)]
        for index, slot in enumerate(slots):
            if slot.digest == digest:
                return start + index * SLOT.size, slot
        index = min(range(SLOTS_PER_BUCKET), key=lambda index: max(slots[index].end, now))
        return start + index * SLOT.size, slots[index]

    def _open(self) -> None:
        """Open the file, also if it was removed since, and another process may have created a
        new one.
        """
        now = time.monotonic()
        if self._fd >= 0 and now < self._next_check:
            return
        self._next_check = now + CHECK_INTERVAL_S
        if self._fd >= 0 and (self._path is None or _is_open(self._path, self._fd)):
            return
        self.close()
        if self._path is None:
            self._fd = os.memfd_create("mobile_sam_counts")
        else:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._fd, BUCKETS * BUCKET_BYTES)


def _counts(slot: Slot, digest: bytes, window: int) -> tuple[int, int]:
    """Return the requests in the window before the given one, and in that."""
    if slot.digest != digest:
        return 0, 0
    if slot.window == window:
        return slot.previous, slot.current
    # A window to come would keep a caller out for as long as the clock was set back.
    return (slot.current, 0) if slot.window == window - 1 else (0, 0)


def _is_open(path: Path, fd: int) -> bool:
    try:
        return path.stat().st_ino == os.fstat(fd).st_ino
    except FileNotFoundError:
        return False
