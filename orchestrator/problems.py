"""Errors that the caller can correct: the image or the prompts are at fault."""

from dataclasses import dataclass

MAX_LINE = 2000


def one_line(text: str) -> str:
    """Return the text as one line for Triton's log: ASCII, everything else escaped, of bounded
    length.
    """
    return ascii(text[:MAX_LINE])[1:-1][:MAX_LINE]


@dataclass(eq=False)
class Rejected(Exception):
    """A request that the caller must change."""

    status: int
    """HTTP status, a 4xx."""
    slug: str
    """Short name of the problem type."""
    title: str
    """Problem type in words."""
    errors: list[dict[str, str]]
    """Offending fields, each with `field`, `expected` and `got`. A point is named
    `points[object][index]`, an earlier mask `masks[object]`."""

    def __str__(self) -> str:
        return f"{self.slug}: {self.errors}"


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
    """The request is too costly for this model, which serves short ones only.

    The service asks another model.
    """


class UnknownImage(Exception):
    """The image has no embedding here; the service sends its file, or asks another model."""
