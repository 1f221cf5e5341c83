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
import os
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

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


@dataclass(frozen=True)
class CacheFiles:
    """The files of entries. The first write makes the folder."""

    folder: Path
    max_bytes: int
    """Size of all files together; 0: write none."""
    caller_of: Callable[[Path, int], bytes]
    """Returns 8 bytes that stand for the caller who had an entry stored, given its file and the
    file's inode."""

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
        path = self.folder / LOCKS / name
        try:
            file = path.open("a+b")
        except FileNotFoundError:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.parent.mkdir(exist_ok=True)
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
        spares: list[os.DirEntry[str]] = []
        with contextlib.suppress(FileNotFoundError):
            spares += os.scandir(self.folder / SPARE)
        sizes = [spare.stat().st_size for spare in spares]
        left = sum(sizes)
        for index, (spare, size) in enumerate(zip(spares, sizes, strict=True)):
            if index and left <= free_bytes:
                break
            Path(spare).replace(name)  # the file of this name is removed
            left -= size
        return Path(name)

    def _evict(self, size: int, caller: bytes) -> int:
        """Remove partial files, and set entries aside until `size` more bytes of a caller fit;
        return the bytes of those that are left.

        The least recently used entries of callers above an equal share go first. When none is above
        it, all callers' entries go in that order.
        """
        for path in self.folder.glob(f"*{PARTIAL}"):
            path.unlink(missing_ok=True)
        files, used, now = [], Counter({caller: size}), time.time_ns()
        for path in self.folder.glob(f"*{SUFFIX}"):
            with contextlib.suppress(OSError):
                status = path.stat()
                files.append((status.st_mtime_ns, status.st_size, path, status.st_ino))
                # The clock was set back; the entry would outlive all others.
                if status.st_mtime_ns > now:
                    os.utime(path)
        total = sum(file[1] for file in files)
        excess = total + size - self.max_bytes
        if excess <= 0:
            return total
        excess += len(files) // SPARE_SHARE * (total // len(files))
        files.sort()
        for _, file_bytes, path, inode in files:
            used[self.caller_of(path, inode)] += file_bytes
        share = self.max_bytes / min(len(used), MAX_SHARES)
        (self.folder / SPARE).mkdir(exist_ok=True)
        for allowed in (share, 0):
            for _, file_bytes, path, inode in files:
                owner = self.caller_of(path, inode)
                if excess > 0 and used[owner] > allowed and path.exists():
                    with contextlib.suppress(FileNotFoundError):  # a person may delete it
                        path.replace(self.folder / SPARE / path.name)
                    used[owner] -= file_bytes
                    excess -= file_bytes
                    total -= file_bytes
        return total
