"""Files for prometheus_client's counters with preallocated disk blocks, or memory if allocation fails.

prometheus_client maps sparse files: on a full disk the first write to an unallocated page kills the process (SIGBUS).
Here all blocks of a file are allocated before it is mapped. If that fails, the worker counts in its own memory, which
`/metrics` does not show, until it can write to the disk again. The same happens when its files are removed.

`utils.bento.HOOKS` lists the private parts of prometheus_client that this module uses.
"""

import logging
import mmap
import os
import time
from pathlib import Path
from typing import Any

logger = logging.getLogger("bentoml.mobile_sam")

INITIAL_BYTES = 65_536
"""Size of a new file, the same as in prometheus_client."""
MAX_ENTRY_OVERHEAD_BYTES = 32
"""Size of an entry without its key: two numbers, a length and padding."""
CHECK_INTERVAL_S = 5.0
"""Time between two checks that a file is where `/metrics` reads it; writes do the checks."""


def allocate_counters() -> None:
    """Make prometheus_client use preallocated files in this process; call this before the first counter is created.

    Without a shared folder the counters are in memory anyway. prometheus_client must not be imported before that folder
    is known.
    """
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return
    from prometheus_client import values  # noqa: PLC0415

    values.MmapedDict = counter_file_class(values.MmapedDict)  # type: ignore[attr-defined]


def counter_file_class(sparse: Any) -> Any:
    """Return a subclass of `sparse`, prometheus_client's `MmapedDict`, that cannot kill the process by a write."""

    class CounterFile(sparse):  # type: ignore[misc]
        """Counters of one kind and process."""

        _f: Any
        _m: Any
        _capacity: int
        _used: int
        in_memory: set[Path] = set()  # noqa: RUF012  (shared by all files of this process, so that there is one warning)

        def __init__(self, filename: str) -> None:
            self._path = Path(filename)
            self._next_check = time.monotonic() + CHECK_INTERVAL_S
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
                self._note_failure(error)

        def _init_value(self, key: str) -> None:
            """Add an entry, after allocating space for it."""
            capacity = self._capacity
            while self._used + len(key.encode()) + MAX_ENTRY_OVERHEAD_BYTES > capacity:
                capacity *= 2
            if capacity > self._capacity and self._path not in self.in_memory:
                try:
                    os.posix_fallocate(self._f.fileno(), 0, capacity)
                except OSError as error:
                    self._move_to(os.fdopen(os.memfd_create(self._path.name), "w+b"))
                    self._note_failure(error)
            super()._init_value(key)

        def write_value(self, key: str, value: float, timestamp: float) -> None:
            """Write a value, and check at intervals that the file is in place."""
            if time.monotonic() > self._next_check:
                self._next_check = time.monotonic() + CHECK_INTERVAL_S
                self._return_to_disk()
            super().write_value(key, value, timestamp)

        def _return_to_disk(self) -> None:
            try:
                if self._path not in self.in_memory and os.path.samestat(self._path.stat(), os.fstat(self._f.fileno())):
                    return
            except OSError:  # the file was removed
                pass
            try:
                self._move_to(self._write(self._m[: self._used], self._capacity))
            except OSError as error:
                self._note_failure(error)
                return
            self.in_memory.discard(self._path)
            if not self.in_memory:
                logger.info("writing this worker's counters to %s again", self._path.parent)

        def _write(self, content: bytes, size: int) -> Any:
            """Atomically replace the file by one with all blocks allocated, and return it.

            Raises:
                OSError: the disk is full, or the folder is missing.
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

        def _move_to(self, file: Any) -> None:
            """Continue in another file, with the counts so far."""
            os.ftruncate(file.fileno(), self._capacity)
            mapped = mmap.mmap(file.fileno(), self._capacity)
            mapped[: self._used] = self._m[: self._used]
            self._m.close()
            self._f.close()
            self._f, self._m = file, mapped

        def _note_failure(self, error: OSError) -> None:
            """Note that `/metrics` cannot read this file; log the first one."""
            if not self.in_memory:
                logger.warning(
                    "cannot write counters to %s; /metrics lacks this worker's counts: %s", self._path.parent, error
                )
            self.in_memory.add(self._path)

    return CounterFile
