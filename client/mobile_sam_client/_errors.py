"""Every error of the client that is not a wrong argument, in one tree.

    MobileSamError                  one base to catch
    ├── ServiceUnreachable          no connection, or a lost one
    ├── ServiceTimeout              no answer in time
    ├── NotThisService              an answer, but not one that this service gives
    └── Problem                     the service refused, and says why
        ├── InvalidRequest          a prompt or a parameter is wrong, or asks for too much (400, 422)
        ├── InvalidImage            the image cannot be read, or has too many pixels (413, 415, 422)
        ├── BodyTooLarge            the file has too many bytes (413)
        ├── Unauthorized            no API key, or none that the service knows (401)
        ├── ImageNotCached          the service has no image of this id (404); the client sends the image again
        ├── TooManyRequests         beyond the caller's rate, and still so after the retries (429)
        └── Unavailable             busy, starting or stopping, and still so after the retries (503), or too slow (504)

Arguments that cannot be right (an array of another shape, no such file) raise `ValueError`, `TypeError` or `OSError`,
as everywhere in Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

LONGEST = 500
"""Characters of an error's text that are shown."""


class FieldError(TypedDict):
    """One offending field of a request."""

    field: str
    """Its path, such as `prompts[1].box`."""
    expected: str
    got: str


class MobileSamError(Exception):
    """Base of all errors that the client raises on purpose, but for wrong arguments."""


class ServiceUnreachable(MobileSamError):
    """Nothing answers at the URL, or the connection was lost."""


class ServiceTimeout(MobileSamError):
    """The service did not begin to answer within `timeout`, or fell silent for so long."""


class NotThisService(MobileSamError):
    """Something answers at the URL, but not as this service does."""


class Problem(MobileSamError):
    """The service refused: an RFC 9457 problem document."""

    def __init__(
        self, document: Mapping[str, Any], request_id: str | None = None, retry_after: float | None = None
    ) -> None:
        """Make the error.

        Args:
            document: the problem document; `status` is in it.
            request_id: what the service's log calls the request.
            retry_after: seconds after which the service said to try again.
        """
        super().__init__(document, request_id, retry_after)
        self.type = str(document.get("type", "about:blank"))
        self.slug = self.type.replace("/", ":").rpartition(":")[2]
        """The last part of the type, such as `invalid-request`."""
        self.title = str(document.get("title", ""))
        self.status = int(document["status"])
        self.detail = str(document.get("detail", ""))
        self.errors: list[FieldError] = [
            FieldError(field=str(error["field"]), expected=str(error["expected"]), got=str(error["got"]))
            for error in document.get("errors", [])
        ]
        """The offending fields, where some are."""
        self.request_id = request_id
        self.retry_after = retry_after

    def __str__(self) -> str:
        """Status, kind, reason and the request's id, in one line."""
        text = one_line(f"{self.status} {self.slug}: {self.detail or self.title}")
        return f"{text} (request {self.request_id})" if self.request_id else text


class InvalidRequest(Problem):
    """A prompt or a parameter is missing, unknown, out of range, or asks for too much; `errors` names it."""


class InvalidImage(Problem):
    """The image is damaged, of another format than PNG, JPEG and WebP, or has too many pixels."""


class BodyTooLarge(Problem):
    """The file has more bytes than the service takes; see `Info.max_body_bytes`, of which base64 costs a quarter."""


class Unauthorized(Problem):
    """The service wants an API key: `api_key`, or the environment variable MOBILE_SAM_API_KEY."""


class ImageNotCached(Problem):
    """The service has no image of this id (any more)."""


class TooManyRequests(Problem):
    """More requests than the caller's rate allows."""


class Unavailable(Problem):
    """Not now: the service is busy, starting or stopping, or the model took too long."""


BY_SLUG: dict[str, type[Problem]] = {
    "malformed-body": InvalidRequest,
    "invalid-request": InvalidRequest,
    "answer-too-large": InvalidRequest,
    "invalid-image": InvalidImage,
    "unsupported-image-format": InvalidImage,
    "image-too-large": InvalidImage,
    "body-too-large": BodyTooLarge,
    "image-not-cached": ImageNotCached,
}
BY_STATUS: dict[int, type[Problem]] = {
    401: Unauthorized,
    422: InvalidRequest,
    429: TooManyRequests,
    503: Unavailable,
    504: Unavailable,
}


def problem_of(document: Mapping[str, Any], request_id: str | None = None, retry_after: float | None = None) -> Problem:
    """The error for a problem document, of the class that its type or else its status has."""
    problem = Problem(document, request_id, retry_after)
    kind = BY_SLUG.get(problem.slug) or BY_STATUS.get(problem.status, Problem)
    return kind(document, request_id, retry_after)


def one_line(text: str) -> str:
    """A text as it may stand in an error: in one line, and not too long."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}..."
