"""What the orchestrator says when the caller's image or prompt is at fault."""

from __future__ import annotations

import json
from collections.abc import Sequence

MAX_LINE = 2000


def one_line(text: str) -> str:
    """The text for Triton's log, where it cannot begin a line: ASCII, all else as escapes, of bounded length."""
    return ascii(text[:MAX_LINE])[1:-1][:MAX_LINE]


class Rejected(Exception):
    """The request cannot be answered, and the caller can mend it.

    Attributes:
        status: the HTTP status that fits, a 4xx.
        slug: short name of the kind of problem.
        title: the kind of problem in words.
        errors: offending fields, each with `field`, `expected` and `got`. A point is named `points[object][index]`.
    """

    def __init__(self, status: int, slug: str, title: str, errors: Sequence[dict[str, str]]) -> None:
        super().__init__(f"{slug}: {errors}")
        self.status = status
        self.slug = slug
        self.title = title
        self.errors = list(errors)

    def encode(self) -> bytes:
        """UTF-8 JSON with `status`, `slug`, `title` and `errors`."""
        document = {"status": self.status, "slug": self.slug, "title": self.title, "errors": self.errors}
        return json.dumps(document).encode()


def rejected_image(status: int, slug: str, title: str, expected: str, got: str) -> Rejected:
    """A rejection of `input_image`."""
    return Rejected(status, slug, title, [{"field": "input_image", "expected": expected, "got": got}])


def answer_too_large(max_bytes: int) -> Rejected:
    """The refusal of an answer whose size shows only while it is made."""
    expected = f"an answer of at most {max_bytes} bytes: fewer objects, or another mask_format"
    error = {"field": "prompts", "expected": expected, "got": "more"}
    return Rejected(422, "answer-too-large", "The answer would be too large", [error])


class Costly(Rejected):
    """What was asked for takes longer than this process may keep others waiting; another one does it."""

    def __init__(self) -> None:
        super().__init__(503, "costly", "For another process", [])
