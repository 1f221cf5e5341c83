"""Embeddings on disk: shared by all processes of the orchestrator, kept over restarts, bounded in bytes.

One file per image, named by the SHA-256 of the image file and the fingerprint of the weights:

    header     64 bytes, see `HEADER`
    embedding  (1, 64, 64, 256) float16, little-endian
    file       the encoded image as it came, for pictures and crops

A file is written under another name and renamed when it is complete. It is read into memory of the process, and the
checksum is verified on that copy: neither what a killed process leaves half-written nor a file that is changed or cut
off while it is in use is ever served. The modification time is the time of the last use.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import tempfile
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

HEADER = struct.Struct("<8sIIQI36x")
"""Magic, height and width of the displayed image in pixels, bytes of the file, CRC-32 of all that and what follows."""
MAGIC = b"MSAMEMB2"
EMBEDDING_SHAPE = (1, 64, 64, 256)
EMBEDDING_BYTES = 2 * 256 * 64 * 64
SUFFIX = ".embedding"
PARTIAL = ".partial"
MAX_AT_HAND_BYTES = 16 * 2**20
"""Entries that a process keeps in memory, at least the last one: they are not read again, and they are all there is
where the disk cannot be written."""

Halves = npt.NDArray[np.float16]


@dataclass(frozen=True)
class Entry:
    """What is known of an image."""

    embedding: Halves
    """(1, 64, 64, 256) float16."""
    size_hw: tuple[int, int]
    """Height and width of the displayed image."""
    file: memoryview | bytes
    """The encoded image."""

    @property
    def nbytes(self) -> int:
        """Memory that the entry takes, in bytes."""
        return self.embedding.nbytes + len(self.file)


class InvalidEntry(ValueError):
    """The bytes are no entry, or not all of one."""


def pack(entry: Entry) -> list[memoryview | bytes]:
    """An entry as the pieces of its file."""
    embedding = np.ascontiguousarray(entry.embedding, "<f2").data.cast("B")
    fields = (MAGIC, *entry.size_hw, len(entry.file))
    checksum = zlib.crc32(entry.file, zlib.crc32(embedding, zlib.crc32(HEADER.pack(*fields, 0))))
    return [HEADER.pack(*fields, checksum), embedding, entry.file]


def unpack(data: Any) -> Entry:
    """The entry in the content of a file, without copying it.

    Args:
        data: bytes, or anything with the buffer interface.

    Raises:
        InvalidEntry: another format, a wrong length or a wrong checksum.
    """
    view = memoryview(data)
    if len(view) < HEADER.size:
        raise InvalidEntry(f"expected at least {HEADER.size} bytes, got {len(view)}")
    magic, height, width, file_bytes, checksum = HEADER.unpack(view[: HEADER.size])
    if magic != MAGIC:
        raise InvalidEntry(f"expected an entry that begins with {MAGIC!r}, got {magic!r}")
    wanted = HEADER.size + EMBEDDING_BYTES + file_bytes
    if len(view) != wanted:
        raise InvalidEntry(f"expected {wanted} bytes, got {len(view)}")
    body = view[HEADER.size :]
    if zlib.crc32(body, zlib.crc32(HEADER.pack(magic, height, width, file_bytes, 0))) != checksum:
        raise InvalidEntry("the checksum does not match the content")
    embedding = np.frombuffer(body[:EMBEDDING_BYTES], "<f2").reshape(EMBEDDING_SHAPE)
    return Entry(embedding, (height, width), body[EMBEDDING_BYTES:])


class EmbeddingCache:
    """The entries of one set of weights in a folder that other weights may share."""

    def __init__(self, folder: Path, fingerprint: str, max_bytes: int, warn: Callable[[str], None]) -> None:
        """Name the folder; it is made when something is written.

        Args:
            folder: where the files lie.
            fingerprint: what tells these weights apart from others.
            max_bytes: of all entries together; 0: none are written.
            warn: is told, once until it works again, what keeps files from being written, and which are damaged.
        """
        self._folder, self._fingerprint, self._max_bytes, self._warn = folder, fingerprint[:16], max_bytes, warn
        self._failing = False
        self._at_hand: OrderedDict[str, tuple[Entry, bool]] = OrderedDict()  # and whether there is a file of it
        self._at_hand_bytes = 0

    def get(self, image_id: str) -> Entry | None:
        """The entry of an image, None where there is none. Counts as a use.

        Args:
            image_id: 64 hexadecimal digits.
        """
        path = self._path(image_id)
        entry, on_disk = self._at_hand.get(image_id, (None, True))
        if on_disk:
            entry = self._used(path, entry)
        self._keep(image_id, entry, on_disk)
        return entry

    def file_of(self, image_id: str) -> bytes | None:
        """The encoded image in an entry that other weights have of it; None where there is none, or a damaged one.

        Args:
            image_id: 64 hexadecimal digits.
        """
        for path in self._folder.glob(f"{image_id}-*{SUFFIX}") if self._max_bytes else ():
            with contextlib.suppress(OSError, InvalidEntry):
                return bytes(unpack(path.read_bytes()).file) or None
        return None

    def put(self, image_id: str, entry: Entry) -> None:
        """Keep an entry, on disk where that can be done, and let go of those not used for longest."""
        on_disk = False
        try:
            on_disk = self._write(self._path(image_id), pack(entry))
            self._failing = False
        except OSError as error:
            self._failed(error)
        # A copy: the encoder's answer lies in memory that Triton's processes share, which would grow with what is kept.
        self._keep(image_id, replace(entry, embedding=entry.embedding.copy()), on_disk)

    @contextlib.contextmanager
    def alone(self, image_id: str) -> Iterator[None]:
        """While one process is inside for an image, others that want in for the same one wait.

        Ends with the process that holds it, however that ends. Where the folder cannot be written nobody waits. One
        image in 256 shares its lock with a given other one, which costs it a wait and nothing else.
        """
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                stack.enter_context(self._lock(image_id[:2]))
            yield

    def _path(self, image_id: str) -> Path:
        return self._folder / f"{image_id}-{self._fingerprint}{SUFFIX}"

    def _used(self, path: Path, known: Entry | None) -> Entry | None:
        """The entry in a file, now its last use; None where there is no such file or it is damaged."""
        if not self._max_bytes:
            return None
        try:
            os.utime(path)
        except FileNotFoundError:
            return None
        except OSError:  # a read-only disk: its entries are as good as ever
            pass
        if known is not None:
            return known
        try:
            return unpack(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._failed(error)
            return None
        except InvalidEntry as error:
            self._warn(f"embedding cache: {path.name} is removed: {error}")
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            return None

    def _keep(self, image_id: str, entry: Entry | None, on_disk: bool) -> None:
        """Keep an entry at hand as the one used last, or forget it where there is none."""
        if image_id in self._at_hand:
            self._at_hand_bytes -= self._at_hand.pop(image_id)[0].nbytes
        if entry is None:
            return
        self._at_hand[image_id] = (entry, on_disk)
        self._at_hand_bytes += entry.nbytes
        while self._at_hand_bytes > MAX_AT_HAND_BYTES and len(self._at_hand) > 1:
            self._at_hand_bytes -= self._at_hand.popitem(last=False)[1][0].nbytes

    def _failed(self, error: OSError) -> None:
        """Tell of the first of a row of failures."""
        if not self._failing:
            self._warn(f"embedding cache: {self._folder} cannot be used, embeddings are not kept: {error}")
        self._failing = True

    def _write(self, path: Path, pieces: list[memoryview | bytes]) -> bool:
        size = sum(len(piece) for piece in pieces)
        if size > self._max_bytes:
            return False
        # One process writes at a time: so the bound holds, and what is half-written here was left by one that is gone.
        with self._lock("room"):
            self._make_room(size)
            with tempfile.NamedTemporaryFile(dir=self._folder, suffix=PARTIAL, delete=False) as file:
                partial = Path(file.name)
                try:
                    file.writelines(pieces)
                    file.flush()
                    partial.replace(path)
                except BaseException:
                    partial.unlink(missing_ok=True)
                    raise
        return True

    def _make_room(self, size: int) -> None:
        """Remove what is half-written, and files, those not used for longest first, until `size` more bytes fit."""
        for path in self._folder.glob(f"*{PARTIAL}"):
            path.unlink(missing_ok=True)
        files = [found for path in self._folder.glob(f"*{SUFFIX}") if (found := _dated(path))]
        now = time.time_ns()
        for used_at, _, path in files:
            if used_at > now:  # the clock was set back: it would outlive everything used from now on
                with contextlib.suppress(OSError):
                    os.utime(path)
        total = sum(length for _, length, _ in files)
        for _, length, path in sorted(files):
            if total + size <= self._max_bytes:
                break
            path.unlink(missing_ok=True)
            total -= length

    @contextlib.contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        locks = self._folder / "locks"
        locks.mkdir(exist_ok=True)
        with (locks / name).open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _dated(path: Path) -> tuple[int, int, Path] | None:
    """Time of the last use in ns and bytes of a file; None for one that just went away."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_size, path
