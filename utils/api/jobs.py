"""Jobs for a segmenter, its answers, and the protocol that tests implement without Triton."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from utils.api.inputs import ImageSource, Prompts
from utils.api.requests import SegmentOptions

CHUNK_BYTES = 256 * 1024
"""Size of the pieces in which a large part is read and sent."""


class StoredContent(Protocol):
    """A part of an answer that is not in memory."""

    def __len__(self) -> int:
        """Return the size in bytes."""

    def __bytes__(self) -> bytes:
        """Return the whole part."""

    def chunks(self) -> Iterator[bytes]:
        """Yield the part in pieces of at most `CHUNK_BYTES`."""


Content = bytes | StoredContent


@dataclass(frozen=True)
class Job:
    """The objects to segment, and the format of the response."""

    prompts: Prompts
    options: SegmentOptions
    model_version: int | None = None
    """None: the newest loaded version."""
    document: bool = False
    """True if the result contains masks and picture."""


@dataclass(frozen=True)
class Segmentation:
    """The contents of the response parts; in a document, `result` alone."""

    mask: Content
    picture: Content | None
    """A PNG file, or None if not requested."""
    result: Content
    """JSON."""


@dataclass(frozen=True)
class GridBatch:
    """Grid points on a crop of an image, and the thresholds for their masks."""

    points_xy: npt.NDArray[np.float32]
    """(N, 2) float32, x then y, pixels of the image."""
    options: Mapping[str, Any]
    """`crop_box` (x0, y0, x1, y1 in pixels of the image) and the thresholds, as config.pbtxt describes them."""
    model_version: int
    """The version that encoded the image."""


class Segmenter(Protocol):
    """Interface for image segmentation. Methods raise a `ServiceError` for invalid input or an unavailable model."""

    async def embed(self, image: ImageSource, model_version: int | None = None) -> bytes:
        """Encode an image ahead of the first prompt and return the result as JSON."""

    async def segment(self, image: ImageSource, job: Job) -> Segmentation:
        """Segment objects in an image."""

    async def records(self, image: ImageSource, batch: GridBatch) -> list[dict[str, Any]]:
        """Return the automatic masks of a batch that reach the thresholds."""
