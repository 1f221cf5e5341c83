"""The files of a disk cache, in a folder that several processes share and that is bounded in bytes:
how they are written, and which ones make room for new ones.

    <name>.embedding        entries; the modification time is the time of the last use
    <name>.partial          an entry that is being written
    spare/<name>.embedding  evicted entries, which new ones overwrite
    locks/<name>            locks; `room` is held while an entry is written

A file that is overwritten keeps its pages of memory and its blocks on the disk. That takes 0.3 ms
for 2.5 MB, where a new file takes 1.5 ms, and 3 ms if a virtual machine must get the pages from its
host.
"""

import contextlib
import fcntl
import functools
import os
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

SUFFIX = ".embedding"
PARTIAL = ".partial"
SPARE, LOCKS = "spare", "locks"
"""Names of folders."""
ROOM = struct.Struct("<Qq")
"""In the file of the lock for writing: bytes of all entries, or more, and the folder's time of
modification when that was true."""
SPARE_SHARE = 32
"""A full folder loses this part of its entries (1/32) besides those that must go. Otherwise each
new one would look at all files, which takes 6 ms for 800."""
MAX_SHARES = 32
"""Callers that share the disk equally. A caller with many addresses gets no more shares than
this."""


class _File(NamedTuple):
    """The file of an entry."""

    used_ns: int
    """Time of the last use."""
    bytes: int
    inode: int
    path: str


@dataclass(frozen=True)
class CacheFiles:
    """The files of entries. The first write makes the folder."""

    folder: Path
    max_bytes: int
    """Size of all files together; 0: write none."""
    caller_of: Callable[[str, int], bytes]
    """Returns 8 bytes that stand for the caller who had an entry stored, given its path and the
    file's inode."""

    @functools.cached_property
    def _spare(self) -> Path:
        return self.folder / SPARE

    @functools.cached_property
    def _locks(self) -> Path:
        return self.folder / LOCKS

    def write(self, path: Path, pieces: Sequence[memoryview | bytes], caller: bytes) -> bool:
        """Write an entry, and evict others if it does not fit; return False if it is too large.

        Args:
            path: file of the entry, in the folder.
            pieces: content.
            caller: 8 bytes that stand for the caller who has the entry stored.

        Raises:
            OSError: the disk is full, or cannot be used.
        """
        size = sum(len(piece) for piece in pieces)
        if size > self.max_bytes:
            return False
        # Only one process writes at a time. So the size is bounded, and dead processes left the
        # partial files.
        with self.lock("room") as room:
            used = self._make_room(room, size, caller)
            partial = self._new_file(self.max_bytes - used - size)
            try:
                with partial.open("r+b") as file:
                    file.writelines(pieces)
                    file.truncate()
                partial.replace(path)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise
            room.truncate(0)
            room.write(ROOM.pack(used + size, self.folder.stat().st_mtime_ns))
        return True

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[IO[bytes]]:
        """Hold a lock, and yield its file. The kernel releases the lock if its holder dies.

        Raises:
            OSError: the folder is not writable.
        """
        path = self._locks / name
        try:
            file = path.open("a+b")
        except FileNotFoundError:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._locks.mkdir(exist_ok=True)
            file = path.open("a+b")
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file

    def _make_room(self, room: IO[bytes], size: int, caller: bytes) -> int:
        """Make room for `size` more bytes of a caller; return the bytes of all entries, or more if
        some were written twice.

        The files are looked at only if the folder is full, or if others have changed it: a process
        that died, or one that does not know of `ROOM`.
        """
        room.seek(0)
        written = room.read()
        if len(written) == ROOM.size:
            used, changed_ns = ROOM.unpack(written)
            if changed_ns == self.folder.stat().st_mtime_ns and used + size <= self.max_bytes:
                return int(used)
        return self._evict(size, caller)

    def _new_file(self, free_bytes: int) -> Path:
        """Return a file for an entry: one of the spare files, if there are any.

        Others are removed until they fit into `free_bytes`.
        """
        handle, name = tempfile.mkstemp(dir=self.folder, suffix=PARTIAL)
        os.close(handle)
        # There is no folder before the first eviction, and a person may delete the files.
        with contextlib.suppress(FileNotFoundError):
            spares = list(os.scandir(self._spare))
            sizes = [spare.stat().st_size for spare in spares]
            left = sum(sizes)
            for index, (spare, size) in enumerate(zip(spares, sizes, strict=True)):
                if index and left <= free_bytes:
                    break
                Path(spare).replace(name)  # the file of this name is removed
                left -= size
        return Path(name)

    def _evict(self, size: int, caller: bytes) -> int:
        """Set entries aside until `size` more bytes of a caller fit; return the bytes of those that
        are left.
        """
        files = self._look()
        total = sum(file.bytes for file in files)
        excess = total + size - self.max_bytes
        if excess <= 0:
            return total
        excess += len(files) // SPARE_SHARE * (total // len(files))
        self._spare.mkdir(exist_ok=True)
        for file in self._least_needed(files, excess, size, caller):
            with contextlib.suppress(FileNotFoundError):  # a person may delete it
                path = Path(file.path)
                path.replace(self._spare / path.name)
            total -= file.bytes
        return total

    def _look(self) -> list[_File]:
        """Return the files of all entries, the least recently used first; remove partial ones."""
        files, now = [], time.time_ns()
        with os.scandir(self.folder) as entries:
            for file in entries:
                if file.name.endswith(PARTIAL):
                    Path(file).unlink(missing_ok=True)
                if not file.name.endswith(SUFFIX):
                    continue
                with contextlib.suppress(OSError):
                    status = file.stat()
                    files.append(
                        _File(status.st_mtime_ns, status.st_size, status.st_ino, file.path)
                    )
                    # The clock was set back; the entry would outlive all others.
                    if status.st_mtime_ns > now:
                        os.utime(file)
        return sorted(files)

    def _least_needed(
        self, files: Sequence[_File], excess: int, size: int, caller: bytes
    ) -> Iterator[_File]:
        """Yield the least recently used files of at least `excess` bytes.

        Those of callers above an equal share go first. When none is above it, all callers' files go
        in that order.

        Args:
            files: all files, the least recently used first.
            excess: bytes that must go.
            size: bytes that a caller is about to write.
            caller: this caller.
        """
        owners = [self.caller_of(file.path, file.inode) for file in files]
        used = Counter({caller: size})
        for owner, file in zip(owners, files, strict=True):
            used[owner] += file.bytes
        share = self.max_bytes / min(len(used), MAX_SHARES)
        gone = set()
        for allowed in (share, 0):
            for owner, file in zip(owners, files, strict=True):
                if excess <= 0:
                    return
                if used[owner] > allowed and file.path not in gone:
                    yield file
                    gone.add(file.path)
                    used[owner] -= file.bytes
                    excess -= file.bytes
