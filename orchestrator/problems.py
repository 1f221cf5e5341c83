"""Errors that the caller can correct: the image or the prompts are at fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MAX_LINE = 2000


def one_line(text: str) -> str:
    """Return the text as one line for Triton's log: ASCII, everything else escaped, of bounded length."""
    return ascii(text[:MAX_LINE])[1:-1][:MAX_LINE]


class Rejected(Exception):
    """A request that the caller must change.

    Attributes:
        status: HTTP status, a 4xx.
        slug: short name of the problem type.
        title: the problem type in words.
        errors: offending fields, each with `field`, `expected` and `got`. A point is named `points[object][index]`.
    """

    def __init__(self, status: int, slug: str, title: str, errors: Sequence[dict[str, str]]) -> None:
        super().__init__(f"{slug}: {errors}")
        self.status = status
        self.slug = slug
        self.title = title
        self.errors = list(errors)

    def document(self) -> dict[str, Any]:
        """Return `status`, `slug`, `title` and `errors`."""
        return {"status": self.status, "slug": self.slug, "title": self.title, "errors": self.errors}


IMAGE_TOO_LARGE = (413, "image-too-large", "The image has too many pixels")
UNREADABLE_IMAGE = (422, "invalid-image", "The image cannot be read")
UNDECODABLE_IMAGE = (422, "invalid-image", "The image cannot be decoded")
UNSUPPORTED_IMAGE = (415, "unsupported-image-format", "The image format is not supported")
INVALID_REQUEST = (422, "invalid-request", "The request is not valid")
ANSWER_TOO_LARGE = (422, "answer-too-large", "The answer would be too large")
TOO_MUCH_WORK = (422, "too-much-work", "The answer would take too long")


def rejected(problem: tuple[int, str, str], field: str, expected: str, got: str) -> Rejected:
    """Return a rejection of one field."""
    return Rejected(*problem, [{"field": field, "expected": expected, "got": got}])


class CostlyRequest(Exception):
    """A request too expensive for this model, which serves short ones only; the service sends it to another model."""


class UnknownImage(Exception):
    """A request names an image that has no embedding here; the service sends the file, or another model has it."""
