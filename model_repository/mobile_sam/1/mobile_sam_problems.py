"""What the orchestrator says when the caller's image or prompt is at fault."""

from __future__ import annotations

import json
from collections.abc import Sequence


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
