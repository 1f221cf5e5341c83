"""Disk cache of embeddings: shared by all processes of the orchestrator, kept across restarts,
bounded in bytes.

One file per image, named by the SHA-256 of the image file and the fingerprint of the weights:

    header     64 bytes, see `HEADER`
    embedding  the tensors in the order of their `Layout`, float16, little-endian; empty before it
               is encoded
    file       the image file as received, for pictures and crops

A file is written under a temporary name and renamed when it is complete
(`orchestrator.cache_files`). A reader copies it into memory and verifies the checksum of the copy,
so that neither a partly written file nor one that changes during the read is ever served. The
modification time is the time of the last use.
"""

import contextlib
import functools
import hashlib
import math
import os
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from isal import isal_zlib

from orchestrator.cache_files import SUFFIX, CacheFiles
from orchestrator.depth import SampleRange
from orchestrator.images import MAX_SIDE_PIXELS
from orchestrator.orientation import NORMAL
from orchestrator.tensors import IMAGE_EMBEDDINGS

HEADER = struct.Struct("<8sIIHHHQ8s16sII2x")
"""Magic, height and width of the displayed image in pixels, its orientation, the range of its
16-bit samples, bytes of the image file, hash of the caller who stored the entry, fingerprint of the
weights, bytes of the embedding, CRC-32 of the image's id and the whole entry."""
MAGIC = b"MSAMEMB6"
"""It changes with the layout, and with the rules by which files become pixels: older entries are
never used."""
NO_RANGE = (0, 0)
"""The range of an image with 8 bits."""
MOBILE_SAM_SHAPES = {IMAGE_EMBEDDINGS.name: (1, *IMAGE_EMBEDDINGS.shape)}
"""Tensors of an embedding of MobileSAM and of Segment Anything."""
MAX_MEMORY_BYTES = 16 * 2**20
"""Size of the entries that a process keeps in memory, at least the last one. They need not be read
again, and are the only cache if the disk cannot be written."""
CROPS_SHARE = 8
"""Crops get this part of the disk space (1/8) in a separate cache, so that they never evict
images."""
MAX_KNOWN_CALLERS = 10_000
"""Files whose callers a process need not read again."""

Embedding = Mapping[str, npt.NDArray[np.float16]]
"""The tensors of an embedding by name."""


@dataclass(frozen=True)
class Layout:
    """What the embeddings of one set of weights are."""

    fingerprint: str
    """Id of the weights, of at least 16 hexadecimal digits; the first 16 count."""
    shapes: Mapping[str, Sequence[int]] = field(default_factory=lambda: MOBILE_SAM_SHAPES)
    """Shape of each tensor by name."""

    @property
    def weights(self) -> str:
        """The digits of the fingerprint by which entries and files are named."""
        return self.fingerprint[:16]

    @property
    def nbytes(self) -> int:
        """Size of an embedding."""
        return sum(2 * math.prod(shape) for shape in self.shapes.values())


@dataclass(frozen=True)
class CachedImage:
    """Cached data of an image."""

    embedding: Embedding
    """Empty if the image is not encoded yet."""
    size_hw: tuple[int, int]
    """Height and width of the displayed image."""
    file: memoryview | bytes
    """The image file."""
    orientation: int = NORMAL
    """EXIF orientation that was applied to the image, 1 to 8."""
    sample_range: SampleRange | None = None
    """Values of 16-bit samples that became 0 and 255; None for 8 bits, and before the image is
    decoded."""
    encode_s: float = 0.0
    """Seconds that the encoder took for the request at hand; 0 if the embedding was known."""

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return sum(tensor.nbytes for tensor in self.embedding.values()) + len(self.file)


class InvalidEntry(ValueError):
    """The bytes are not a complete entry of the weights."""


def pack(
    image_id: str, entry: CachedImage, layout: Layout, caller: str = ""
) -> list[memoryview | bytes]:
    """Return the content of the file of an image's entry, in pieces."""
    names = layout.shapes if entry.embedding else ()
    body = [np.ascontiguousarray(entry.embedding[name], "<f2").data.cast("B") for name in names]
    image = (*entry.size_hw, entry.orientation, *(entry.sample_range or NO_RANGE))
    fields = (
        *image,
        len(entry.file),
        caller_hash(caller),
        layout.weights.encode(),
        sum(map(len, body)),
    )
    checksum = 0
    for piece in (image_id.encode(), HEADER.pack(MAGIC, *fields, 0), *body, entry.file):
        checksum = isal_zlib.crc32(piece, checksum)
    return [HEADER.pack(MAGIC, *fields, checksum), *body, entry.file]


def caller_hash(caller: str) -> bytes:
    """Return the 8 bytes that stand for a caller in the header of an entry."""
    return hashlib.sha256(caller.encode()).digest()[:8]


def unpack(image_id: str, data: Any, layout: Layout) -> CachedImage:
    """Return the entry in the content of a file, without copying it.

    Args:
        image_id: id of the image whose entry it must be.
        data: bytes, or anything with the buffer interface.
        layout: what the entry's embedding must be.

    Raises:
        InvalidEntry: another image, other weights, another format, a wrong length, a wrong
            checksum, or a size, an orientation or a range that no image has.
    """
    weights, body, entry = _checked(image_id, data)
    if weights != layout.weights or len(body) not in (0, layout.nbytes):
        expected = f"{layout.nbytes} bytes by the weights {layout.weights}"
        raise InvalidEntry(
            f"expected an embedding of {expected}, got {len(body)} bytes by {weights}"
        )
    embedding = {}
    for name, shape in layout.shapes.items() if body else ():
        piece, body = body[: 2 * math.prod(shape)], body[2 * math.prod(shape) :]
        embedding[name] = np.frombuffer(piece, "<f2").reshape(shape)
    return replace(entry, embedding=embedding)


def _checked(image_id: str, data: Any) -> tuple[str, memoryview, CachedImage]:
    """Return weights, embedding and the rest of an entry of any weights."""
    view = memoryview(data)
    if len(view) < HEADER.size:
        raise InvalidEntry(f"expected at least {HEADER.size} bytes, got {len(view)}")
    *fields, checksum = HEADER.unpack(view[: HEADER.size])
    magic, height, width, orientation, low, high, file_bytes, _, weights, embedding_bytes = fields
    if magic != MAGIC:
        raise InvalidEntry(f"expected an entry that begins with {MAGIC!r}, got {magic!r}")
    expected = HEADER.size + embedding_bytes + file_bytes
    if len(view) != expected:
        raise InvalidEntry(f"expected {expected} bytes, got {len(view)}")
    body = view[HEADER.size :]
    computed = 0
    for piece in (image_id.encode(), HEADER.pack(*fields, 0), body):
        computed = isal_zlib.crc32(piece, computed)
    if computed != checksum:
        raise InvalidEntry("the checksum does not match the content")
    if not (0 < height <= MAX_SIDE_PIXELS and 0 < width <= MAX_SIDE_PIXELS):
        raise InvalidEntry(
            f"expected an image with sides of 1 to {MAX_SIDE_PIXELS} pixels, got {width} x {height}"
        )
    sample_range = None if (low, high) == NO_RANGE else (low, high)
    if orientation not in range(1, 9) or (sample_range and low >= high):
        raise InvalidEntry(
            f"expected an orientation of 1 to 8 and a range, got {orientation} and {low} to {high}"
        )
    name = weights.rstrip(b"\0").decode("ascii", "replace")
    return (
        name,
        body[:embedding_bytes],
        CachedImage({}, (height, width), body[embedding_bytes:], orientation, sample_range),
    )


@dataclass(eq=False)
class EmbeddingCache:
    """Entries of one set of weights, in a folder that several sets may share.

    The first write makes the folder.

    Image ids are 64 hexadecimal digits.
    """

    folder: Path
    layout: Layout
    """Weights and tensors of the embeddings."""
    max_bytes: int
    """Size of all entries together; 0: write none."""
    warn: Callable[[str], None]
    """Called with a message for each damaged file, and when the folder fails, once until it works
    again."""

    def __post_init__(self) -> None:
        self._files = CacheFiles(self.folder, self.max_bytes, _caller_of)
        self._failing = False
        # Entry, and whether it is on disk.
        self._memory: OrderedDict[str, tuple[CachedImage, bool]] = OrderedDict()
        self._memory_bytes = 0

    def get(self, image_id: str) -> CachedImage | None:
        """Return the entry of an image, None if there is none. Counts as a use."""
        entry, on_disk = self._memory.get(image_id, (None, True))
        if on_disk:
            entry = self._touch(image_id, entry)
        self._remember(image_id, entry, on_disk)
        return entry

    def image_file(self, image_id: str) -> bytes | None:
        """Return the image file from an entry of any weights, None if no valid entry has it."""
        for path in self.folder.glob(f"{image_id}-*{SUFFIX}") if self.max_bytes else ():
            with contextlib.suppress(OSError, InvalidEntry):
                return bytes(_checked(image_id, path.read_bytes())[2].file) or None
        return None

    def put(self, image_id: str, entry: CachedImage, caller: str = "") -> None:
        """Store an entry, on disk if possible, and evict the least recently used ones.

        Those of callers with more than their share of the disk go first. An entry on disk is not
        kept in memory before its first use: that is usually in a process for known images.

        Args:
            image_id: id of the image.
            entry: the entry.
            caller: caller who has the image stored.
        """
        on_disk = False
        try:
            on_disk = self._files.write(
                self._path(image_id),
                pack(image_id, entry, self.layout, caller),
                caller_hash(caller),
            )
            self._failing = False
        except OSError as error:
            self._report_failure(error)
        copy = None
        if not on_disk:
            # The encoder's output is in memory shared with Triton, which would grow with every
            # entry kept.
            tensors = {name: tensor.copy() for name, tensor in entry.embedding.items()}
            copy = replace(entry, embedding=tensors, encode_s=0.0)
        self._remember(image_id, copy, on_disk)

    @contextlib.contextmanager
    def encode_lock(self, image_id: str) -> Iterator[None]:
        """Hold the lock of an image, so that only one process encodes it.

        The kernel releases the lock if its holder dies. Without a writable folder there is no lock.
        Two images share a lock with a probability of 1 in 256; then one waits for the other.
        """
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                stack.enter_context(self._files.lock(image_id[:2]))
            yield

    @contextlib.contextmanager
    def decode_lock(self) -> Iterator[None]:
        """Hold the machine's lock for decoding an image above the pixel limit.

        Without a writable folder there is none.

        The kernel releases the lock if its holder dies.
        """
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                stack.enter_context(self._files.lock("decode"))
            yield

    def _path(self, image_id: str) -> Path:
        return self.folder / f"{image_id}-{self.layout.weights}{SUFFIX}"

    def _touch(self, image_id: str, entry: CachedImage | None) -> CachedImage | None:
        """Set the time of last use of an image's file, and return `entry` or read it.

        None if the file is missing or damaged.
        """
        if not self.max_bytes:
            return None
        path = self._path(image_id)
        try:
            os.utime(path)
        except FileNotFoundError:
            return None
        except OSError:  # a read-only disk can still be read
            pass
        if entry is not None:
            return entry
        try:
            return unpack(image_id, path.read_bytes(), self.layout)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self._report_failure(error)
            return None
        except InvalidEntry as error:
            # If it is gone, another process has evicted it, and overwritten its file meanwhile.
            if path.exists():
                self.warn(f"embedding cache: {path.name} is removed: {error}")
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
            return None

    def _remember(self, image_id: str, entry: CachedImage | None, on_disk: bool) -> None:
        """Keep an entry in memory as the most recently used one; None removes it."""
        if image_id in self._memory:
            self._memory_bytes -= self._memory.pop(image_id)[0].nbytes
        if entry is None or (on_disk and not entry.embedding):  # which another process may add
            return
        self._memory[image_id] = (entry, on_disk)
        self._memory_bytes += entry.nbytes
        while self._memory_bytes > MAX_MEMORY_BYTES and len(self._memory) > 1:
            self._memory_bytes -= self._memory.popitem(last=False)[1][0].nbytes

    def _report_failure(self, error: OSError) -> None:
        """Warn of the first failure in a row."""
        if not self._failing:
            self.warn(
                f"embedding cache: {self.folder} cannot be used, embeddings are not kept: {error}"
            )
        self._failing = True


def with_crops(cache: EmbeddingCache) -> tuple[EmbeddingCache, EmbeddingCache]:
    """Return two caches that share the space of one: for images, and for crops in a subfolder."""
    crops_bytes = cache.max_bytes // CROPS_SHARE
    images = replace(cache, max_bytes=cache.max_bytes - crops_bytes)
    crops = replace(cache, folder=cache.folder / "crops", max_bytes=crops_bytes)
    return images, crops


@functools.lru_cache(maxsize=MAX_KNOWN_CALLERS)
def _caller_of(path: str, _inode: int) -> bytes:
    """Return the hash of the caller in a file's header, empty for other formats and files that
    are gone.
    """
    try:
        with Path(path).open("rb") as file:
            magic, *_, caller, _, _, _ = HEADER.unpack(file.read(HEADER.size))
    except (OSError, struct.error):
        return b""
    return bytes(caller) if magic == MAGIC else b""
