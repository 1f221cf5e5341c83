"""Contents of answers, some of which are read piece by piece instead of being held in memory."""

import os
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.call import MemoryFile

CHUNK_BYTES = 256 * 1024
"""Size of the pieces in which a large part is read and sent."""


@dataclass(frozen=True)
class Spooled:
    """A part of an answer in the memory file of its request, which is closed with its last part."""

    memory_file: MemoryFile
    offset: int
    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> bytes:
        start, stop, _ = part.indices(self.size)
        return self.memory_file.read(self.offset + start, stop - start)

    def __bytes__(self) -> bytes:
        return self[:]


class OpenFile:
    """A file of which one piece at a time is in memory; it is closed with the last reference."""

    def __init__(self, path: Path) -> None:
        """Open the file.

        Raises:
            OSError: it cannot be read.
        """
        self._name = path.name
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)
        self._opened = os.fstat(self._descriptor)

    def __len__(self) -> int:
        return self._opened.st_size

    def __getitem__(self, part: slice) -> bytes:
        """Return a part of the file as it was when it was opened.

        Raises:
            OSError: the file was changed meanwhile; nobody gets a complete one that is a mix of
                two.
        """
        start, stop, _ = part.indices(len(self))
        data = os.pread(self._descriptor, stop - start, start)
        now = os.fstat(self._descriptor)
        if (now.st_mtime_ns, now.st_size) != (self._opened.st_mtime_ns, self._opened.st_size):
            raise OSError(f"{self._name} was changed while it was sent")
        return data

    def __bytes__(self) -> bytes:
        return self[:]


Content = bytes | Spooled | OpenFile


def chunks(content: Content) -> Iterator[bytes]:
    """Yield a part in pieces of at most `CHUNK_BYTES`."""
    return (content[start : start + CHUNK_BYTES] for start in range(0, len(content), CHUNK_BYTES))
