"""Counters of prometheus_client in files whose disk blocks are allocated ahead, or in memory where that fails.

prometheus_client maps sparse files: on a full disk the first write to a page that has no block yet ends the process
(SIGBUS). Here a file has all of its blocks before it is mapped. A worker that gets none counts in memory of its own,
which `/metrics` does not show, and goes back to the disk when it can, also where its files were removed.

Every private touch of prometheus_client is in this module. `test_counter_files.py` holds it to the locked version.
"""

from __future__ import annotations

import logging
import mmap
import os
import time
from pathlib import Path
from typing import Any

logger = logging.getLogger("bentoml.mobile_sam")

INITIAL_BYTES = 65_536
"""Size of a new file, as prometheus_client has it."""
LONGEST_ENTRY_BYTES = 32
"""Bytes of an entry beside its key, at most: two numbers, a length and padding."""
LOOK_EVERY_S = 5.0
"""Time between two looks whether a file is where `/metrics` reads it; a look is part of a write."""
PRIVATE = ("_f", "_m", "_capacity", "_used")
"""Attributes of prometheus_client's files that are used here."""


def allocate_counters() -> None:
    """Have prometheus_client keep this process's counters in such files; to be called before the first is counted.

    Where no folder is shared, counters are in memory anyway. prometheus_client must not be imported before that folder
    is known.
    """
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return
    from prometheus_client import values  # noqa: PLC0415

    sparse = getattr(values, "MmapedDict", None)
    if sparse is None or any(name not in sparse.__init__.__code__.co_names for name in PRIVATE):
        logger.error("this release of prometheus_client is not known: a full temporary folder can end API workers")
        return
    values.MmapedDict = counter_file_class(sparse)  # type: ignore[attr-defined]


def counter_file_class(sparse: Any) -> Any:
    """Return a class that behaves as prometheus_client's `MmapedDict`, whose writes cannot end the process.

    Args:
        sparse: prometheus_client's class.
    """

    class CounterFile(sparse):  # type: ignore[misc]
        """Counters of one kind and process."""

        _f: Any
        _m: Any
        _capacity: int
        _used: int
        in_memory: set[Path] = set()  # noqa: RUF012  (of all files of this process: one warning for all)

        def __init__(self, filename: str) -> None:
            self._path = Path(filename)
            self._next_look = time.monotonic() + LOOK_EVERY_S
            try:
                if self._path.exists():
                    with self._path.open("ab") as file:
                        os.posix_fallocate(file.fileno(), 0, max(INITIAL_BYTES, os.fstat(file.fileno()).st_size))
                else:
                    self._write(b"", INITIAL_BYTES).close()
                super().__init__(filename)
            except OSError as error:
                memory = os.memfd_create(self._path.name)
                super().__init__(f"/proc/self/fd/{memory}")
                os.close(memory)
                self._failed(error)

        def _init_value(self, key: str) -> None:
            """Add an entry; the file grows before it is written to."""
            capacity = self._capacity
            while self._used + len(key.encode()) + LONGEST_ENTRY_BYTES > capacity:
                capacity *= 2
            if capacity > self._capacity and self._path not in self.in_memory:
                try:
                    os.posix_fallocate(self._f.fileno(), 0, capacity)
                except OSError as error:
                    self._go_on_in(os.fdopen(os.memfd_create(self._path.name), "w+b"))
                    self._failed(error)
            super()._init_value(key)

        def write_value(self, key: str, value: float, timestamp: float) -> None:
            """Write a value, and now and then see to it that the file is where it should be."""
            if time.monotonic() > self._next_look:
                self._next_look = time.monotonic() + LOOK_EVERY_S
                self._return_to_disk()
            super().write_value(key, value, timestamp)

        def _return_to_disk(self) -> None:
            try:
                if self._path not in self.in_memory and os.path.samestat(self._path.stat(), os.fstat(self._f.fileno())):
                    return
            except OSError:  # the file was removed
                pass
            try:
                self._go_on_in(self._write(self._m[: self._used], self._capacity))
            except OSError as error:
                self._failed(error)
                return
            self.in_memory.discard(self._path)
            if not self.in_memory:
                logger.info("counters of this worker are written to %s", self._path.parent)

        def _write(self, content: bytes, size: int) -> Any:
            """Return a new file with all of its blocks, in place of what was there; readers see all of it or nothing.

            Raises:
                OSError: the disk is full, or the folder is not there.
            """
            fresh = self._path.with_suffix(".new")
            file = fresh.open("w+b")
            try:
                os.posix_fallocate(file.fileno(), 0, size)
                file.write(content)
                file.flush()
                fresh.replace(self._path)
            except BaseException:
                file.close()
                fresh.unlink(missing_ok=True)
                raise
            return file

        def _go_on_in(self, file: Any) -> None:
            """Continue in another file, with the counts so far."""
            os.ftruncate(file.fileno(), self._capacity)
            mapped = mmap.mmap(file.fileno(), self._capacity)
            mapped[: self._used] = self._m[: self._used]
            self._m.close()
            self._f.close()
            self._f, self._m = file, mapped

        def _failed(self, error: OSError) -> None:
            """Note that this file is not where `/metrics` reads it; tell of the first."""
            if not self.in_memory:
                logger.warning(
                    "counters cannot be written to %s, this worker counts alone: %s", self._path.parent, error
                )
            self.in_memory.add(self._path)

    return CounterFile
