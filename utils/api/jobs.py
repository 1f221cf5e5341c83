"""The protocol of segmenters, which tests implement without Triton, and their answers."""

from collections.abc import Iterator
from dataclasses import dataclass
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


Content = bytes | Spooled


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
