"""The interface of segmenters, which tests implement without Triton, and their answers."""

from dataclasses import dataclass
from typing import Any, Protocol

from utils.inference.contents import Content
from utils.inference.request import ImageSource, InferenceRequest


@dataclass(frozen=True)
class AnswerParts:
    """The contents of the response parts; in a document, `result` alone."""

    mask: Content
    picture: Content | None
    """A PNG file, or None if not requested."""
    result: Content
    """JSON."""


class Segmenter(Protocol):
    """Interface for image segmentation.

    Methods raise a `ServiceError` for invalid input or an unavailable model.
    """

    parallel_batches: int
    """Batches of automatic masks that the model works on at once."""
    batch_points: int
    """Points in one of them: other callers wait until it ends."""

    async def embed(
        self, image: ImageSource, model_version: int | None = None, *, background: bool = False
    ) -> bytes:
        """Encode an image ahead of the first prompt and return the result as JSON.

        In the background no caller waits; a file is only checked and kept there, to encode it later
        by its id.
        """

    async def segment(self, image: ImageSource, request: InferenceRequest) -> AnswerParts:
        """Segment objects in an image."""

    async def records(self, image: ImageSource, batch: InferenceRequest) -> dict[str, Any]:
        """Return `masks`, the automatic masks of a batch that reach the thresholds, and the
        `engine`.
        """
