"""The protocol of segmenters, which tests implement without Triton, and their answers."""

import os
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from orchestrator.call import Exchange
from utils.api.inputs import ImageSource, Job

CHUNK_BYTES = 256 * 1024
"""Size of the pieces in which a large part is read and sent."""


@dataclass(frozen=True)
class Spooled:
    """A part of an answer in the memory file of its request, which is closed with its last part."""

    exchange: Exchange
    offset: int
    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> bytes:
        start, stop, _ = part.indices(self.size)
        return self.exchange.read(self.offset + start, stop - start)

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
            OSError: the file was changed meanwhile; nobody gets a complete one that is a mix of two.
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


@dataclass(frozen=True)
class AnswerParts:
    """The contents of the response parts; in a document, `result` alone."""

    mask: Content
    picture: Content | None
    """A PNG file, or None if not requested."""
    result: Content
    """JSON."""


class Segmenter(Protocol):
    """Interface for image segmentation. Methods raise a `ServiceError` for invalid input or an unavailable model."""

    parallel_batches: int
    """Batches of automatic masks that the model works on at once."""

    async def embed(self, image: ImageSource, model_version: int | None = None, *, background: bool = False) -> bytes:
        """Encode an image ahead of the first prompt and return the result as JSON.

        In the background no caller waits; a file is only checked and kept there, to encode it later by its id.
        """

    async def segment(self, image: ImageSource, job: Job) -> AnswerParts:
        """Segment objects in an image."""

    async def records(self, image: ImageSource, batch: Job) -> dict[str, Any]:
        """Return `masks`, the automatic masks of a batch that reach the thresholds, and the `engine`."""
