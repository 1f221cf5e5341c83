"""Errors of the client.

    MobileSamError                  base class
    ├── ServiceUnreachable          connection failed or lost
    ├── ServiceTimeout              no answer in time
    ├── NotThisService              the answer is not from a MobileSAM service
    ├── batches.WeightsChanged      the results of a batch would come from two models
    └── Problem                     the service rejected the request
        ├── InvalidRequest          invalid prompt or parameter, or too large a result (400, 422)
        ├── InvalidImage            the image cannot be read, or has too many pixels (413, 415, 422)
        ├── BodyTooLarge            the file has too many bytes (413)
        ├── Unauthorized            missing or unknown API key (401)
        ├── ImageNotCached          unknown image id (404); the client uploads the image again
        ├── TooManyRequests         rate limit exceeded, also after the retries (429)
        └── Unavailable             busy, starting or stopping, also after the retries (503), or too
        slow (504)

Invalid arguments (wrong array shape, missing file) raise `ValueError`, `TypeError` or `OSError`.
"""

from collections.abc import Mapping
from typing import Any, TypedDict

from mobile_sam_client._settings import KEY_VARIABLE

MAX_TEXT_LENGTH = 500
"""Longer error texts are truncated."""


class FieldError(TypedDict):
    """An invalid field of a request."""

    field: str
    """Path of the field, such as `prompts[1].box`."""
    expected: str
    got: str


class MobileSamError(Exception):
    """Base class of the client's errors, except for invalid arguments."""


class ServiceUnreachable(MobileSamError):
    """The connection to the service failed or was lost."""


class ServiceTimeout(MobileSamError):
    """The service sent nothing for `timeout` seconds."""


class NotThisService(MobileSamError):
    """The answer does not come from a MobileSAM service."""


class Problem(MobileSamError):
    """The service rejected the request with an RFC 9457 problem document."""

    def __init__(
        self,
        document: Mapping[str, Any],
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        """Create the error.

        Args:
            document: problem document, including `status`.
            request_id: id of the request in the service's log.
            retry_after: seconds from the `Retry-After` header.
        """
        super().__init__(document, request_id, retry_after)
        self.type = str(document.get("type", "about:blank"))
        self.slug = self.type.replace("/", ":").rpartition(":")[2]
        """Last part of the type, such as `invalid-request`."""
        self.title = str(document.get("title", ""))
        self.status = int(document["status"])
        self.detail = str(document.get("detail", ""))
        self.errors: list[FieldError] = [
            FieldError(
                field=str(error["field"]), expected=str(error["expected"]), got=str(error["got"])
            )
            for error in document.get("errors", [])
        ]
        """Invalid fields of the request."""
        self.request_id = request_id
        self.retry_after = retry_after

    def __str__(self) -> str:
        """Return status, slug, detail and request id in one line."""
        text = one_line(f"{self.status} {self.slug}: {self.detail or self.title}")
        return f"{text} (request {self.request_id})" if self.request_id else text


class InvalidRequest(Problem):
    """A field is invalid, or the result would be too large.

    `errors` lists the fields that are missing, unknown or out of range.
    """


class InvalidImage(Problem):
    """The image is damaged, not a PNG, JPEG or WebP file, or has too many pixels."""


class BodyTooLarge(Problem):
    """The file is too large.

    In base64 it takes four thirds of its size, limited by `Info.max_body_bytes`.
    """


class Unauthorized(Problem):
    """The service needs a valid API key.

    Pass it as `api_key`, or set the environment variable MOBILE_SAM_API_KEY.
    """


class ImageNotCached(Problem):
    """The service has no image with this id, or no longer."""


class TooManyRequests(Problem):
    """The caller exceeded its rate limit."""


class Unavailable(Problem):
    """The service is busy, starting or stopping, or the model took too long."""


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


def problem_from_document(
    document: Mapping[str, Any], request_id: str | None = None, retry_after: float | None = None
) -> Problem:
    """Return the error for a problem document.

    Its class depends on the type, or else on the status.
    """
    problem = Problem(document, request_id, retry_after)
    kind = BY_SLUG.get(problem.slug) or BY_STATUS.get(problem.status, Problem)
    return kind(document, request_id, retry_after)


def one_line(text: str) -> str:
    """Return the text in one line, truncated to `MAX_TEXT_LENGTH`."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_TEXT_LENGTH else f"{line[:MAX_TEXT_LENGTH]}..."


def describe_error(error: Exception, *, with_file: bool = False) -> str:
    """Return an error in one line.

    Args:
        error: an error of the client or of the operating system.
        with_file: True to name the file of an `OSError`.
    """
    text = str(error)
    file = ""
    if isinstance(error, OSError):
        text = error.strerror or text
        file = error.filename or ""
    line = " ".join((text or type(error).__name__).split())
    if isinstance(error, Unauthorized):
        line += f"; set the API key in {KEY_VARIABLE}"
    return f"{file}: {line}" if with_file and file else line
