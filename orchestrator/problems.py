"""Errors that the caller can correct: the image or the prompts are at fault."""

from __future__ import annotations

import json
from collections.abc import Sequence

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

    def encode(self) -> bytes:
        """Return UTF-8 JSON with `status`, `slug`, `title` and `errors`."""
        document = {"status": self.status, "slug": self.slug, "title": self.title, "errors": self.errors}
        return json.dumps(document).encode()


IMAGE_TOO_LARGE = (413, "image-too-large", "The image has too many pixels")
UNREADABLE_IMAGE = (422, "invalid-image", "The image cannot be read")
UNDECODABLE_IMAGE = (422, "invalid-image", "The image cannot be decoded")
UNSUPPORTED_IMAGE = (415, "unsupported-image-format", "The image format is not supported")
NOT_CACHED = (404, "image-not-cached", "The image is not cached")
INVALID_REQUEST = (422, "invalid-request", "The request is not valid")
ANSWER_TOO_LARGE = (422, "answer-too-large", "The answer would be too large")
TOO_MUCH_WORK = (422, "too-much-work", "The answer would take too long")


def rejected(problem: tuple[int, str, str], field: str, expected: str, got: str) -> Rejected:
    """Return a rejection of one field."""
    return Rejected(*problem, [{"field": field, "expected": expected, "got": got}])


class CostlyRequest(Rejected):
    """A request too expensive for this model, which serves short ones only; the service sends it to another model."""

    def __init__(self) -> None:
        super().__init__(503, "costly", "For another process", [])
