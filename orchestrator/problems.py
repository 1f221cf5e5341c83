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


def rejected_image(status: int, slug: str, title: str, expected: str, got: str) -> Rejected:
    """Return a rejection of `input_image`."""
    return Rejected(status, slug, title, [{"field": "input_image", "expected": expected, "got": got}])


def answer_too_large(max_bytes: int) -> Rejected:
    """Return the rejection of an answer whose size is only known while it is made."""
    expected = f"an answer of at most {max_bytes} bytes; ask for fewer objects or another mask_format"
    error = {"field": "prompts", "expected": expected, "got": "more"}
    return Rejected(422, "answer-too-large", "The answer would be too large", [error])


class CostlyRequest(Rejected):
    """A request too expensive for this model, which serves short ones only; the service sends it to another model."""

    def __init__(self) -> None:
        super().__init__(503, "costly", "For another process", [])
