"""Errors of the service and their RFC 9457 problem documents.

    ServiceError                    base class; carries the HTTP status and the problem type
    ├── MalformedRequest      400   the length of the body is ambiguous (RFC 9112)
    ├── MalformedBody         400   the body is not valid JSON
    ├── MalformedForm         400   the body is not valid multipart/form-data
    ├── Unauthorized          401   the API key is missing or unknown
    ├── ForeignPage           403   a page of another origin may have sent the request
    ├── UnknownPath           404   there is no such path
    ├── ImageNotCached        404   the image id is unknown, or the image is no longer cached
    ├── WrongMethod           405   the path does not support the method
    ├── NotAcceptable         406   the answer has none of the media types that the caller accepts
    ├── SlowBody              408   the body did not arrive in time
    ├── ModelChange           409   models cannot be loaded or unloaded, at least not now
    ├── OtherWeights          409   the decoder's file belongs to other weights
    ├── BodyTooLarge          413   the body has too many bytes
    ├── QueueTooLarge         413   a list of images to encode never fits
    ├── UnsupportedMedia      415   the Content-Type is none that the path takes
    │   └── UnsupportedEncoding     the body has a Content-Encoding
    ├── InvalidRequest        422   a field is missing, unknown, of the wrong type or out of range
    │   └── ImageNotFetched         an image URL was refused, or fetching it failed
    ├── AnswerTooLarge        422   the answer would have too many bytes
    ├── TooManyRequests       429   the caller exceeded the rate limit
    │   └── QueueFull               images to encode do not fit now
    ├── HeadTooLarge          431   headers and trailers have too many bytes or fields
    ├── RejectedByModel       4xx   the image cannot be used; the orchestrator gives status and type
    ├── InferenceFailed       500   Triton answered with an error, which is never the caller's fault
    ├── Unavailable           503   temporary; retry later
    │   ├── InferenceUnavailable    Triton is starting, restarting or unhealthy
    │   │   └── NotLoaded           the model or the requested version is not loaded
    │   ├── QueueUnavailable        the queue of images cannot be used
    │   ├── Overloaded              too many requests or bytes are in progress
    │   └── Stopping                the service is stopping
    └── InferenceTimeout      504   Triton did not answer in time

Problem types are `urn:mobile-sam:` followed by the slug. `errors` lists each invalid field with the
expected and the received value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import orjson
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from orchestrator.problems import ANSWER_TOO_LARGE, INVALID_REQUEST
from utils.observability.logs import quoted, shown

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:mobile-sam:"
URI: dict[str, Any] = {"format": "uri"}
MAX_FIELD_CHARS, MAX_VALUE_CHARS, MAX_DETAIL_CHARS = 80, 1000, 4000
"""Lengths of a field's path, of an expected or received value, and of a problem's detail; longer
texts are cut."""

STOPPING_DETAIL = "the service is shutting down and accepts no new requests; retry later"


@dataclass(frozen=True)
class FieldError:
    """An offending field."""

    field: Annotated[str, Field(description="path of the field, such as `pos_coords[1][0]`")]
    expected: Annotated[str, Field(description="the expected value")]
    got: Annotated[str, Field(description="the received value")]

    def __post_init__(self) -> None:
        # Safe for a log line and a problem document: printable, and of bounded length.
        for name, limit in (
            ("field", MAX_FIELD_CHARS),
            ("expected", MAX_VALUE_CHARS),
            ("got", MAX_VALUE_CHARS),
        ):
            object.__setattr__(self, name, shown(getattr(self, name), limit))


@dataclass(frozen=True)
class Problem:
    """An RFC 9457 problem document."""

    status: Annotated[int, Field(ge=400, le=599, description="HTTP status of the response")]
    slug: Annotated[
        str,
        Field(
            alias="type",
            description="`urn:mobile-sam:` and the problem's name",
            json_schema_extra=URI,
        ),
    ]
    title: Annotated[str, Field(description="summary of the problem type")]
    detail: Annotated[str, Field(description="explanation of this occurrence")]
    errors: Annotated[Sequence[FieldError], Field(description="the offending fields, if any")] = (
        field(default_factory=tuple)
    )
    headers: SkipJsonSchema[dict[str, str]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the document's members, as orjson takes them."""
        document = {
            "type": TYPE_PREFIX + self.slug,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }
        return {**document, "errors": self.errors} if self.errors else document

    def encode(self) -> bytes:
        """Return the document as UTF-8 JSON."""
        return orjson.dumps(self.as_json())


def mib(count: int) -> str:
    """Return a number of bytes in MiB, rounded up to tenths, so that more than a limit is shown
    as more.
    """
    return f"{math.ceil(count * 10 / 2**20) / 10:.12g} MiB" if count >= 2**20 else f"{count} bytes"


def summary(errors: Sequence[FieldError], *, got: bool = True) -> str:
    """Return the first few errors in one line; without `got` it contains no value from the
    request.
    """
    texts = [
        f"{error.field}: expected {error.expected}" + f", got {error.got}" * got
        for error in errors[:3]
    ]
    more = f" (and {len(errors) - 3} more)" if len(errors) > 3 else ""
    return "; ".join(texts) + more


class ServiceError(Exception):
    """Base class of errors that are answered with a problem document."""

    status: ClassVar[int] = 500
    slug: ClassVar[str] = "internal-error"
    title: ClassVar[str] = "The service failed"
    retry_after: int | None = None
    """Seconds until a retry, if one may succeed."""

    def __init_subclass__(cls, *, status: int = 0, slug: str = "", title: str = "") -> None:
        cls.status, cls.slug, cls.title = status or cls.status, slug or cls.slug, title or cls.title

    def __init__(
        self,
        detail: str = "",
        errors: Sequence[FieldError] = (),
        *,
        got: str | None = None,
        logged: str = "",
    ) -> None:
        """Store the error's texts.

        Args:
            detail: message for the caller; by default the summary of `errors`.
            errors: invalid fields.
            got: what the request has in place of what `detail` expects; not for the log.
            logged: message for the log, if `detail` quotes the request. With `errors` it defaults
                to their summary without received values.
        """
        if got is not None:
            detail, logged = f"{detail}, got {got}", detail
        detail = detail or summary(errors)
        super().__init__(detail)
        self.detail = shown(detail, MAX_DETAIL_CHARS)
        self.errors = tuple(errors)
        self.logged = shown(logged or summary(errors, got=False) or detail, MAX_DETAIL_CHARS)

    def problem(self) -> Problem:
        """Return the problem document."""
        return Problem(self.status, self.slug, self.title, self.detail, self.errors, self.headers())

    def headers(self) -> dict[str, str]:
        """Return additional response headers."""
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}


class MalformedRequest(
    ServiceError, status=400, slug="malformed-request", title="The request is not valid HTTP"
):
    """The length of the body is ambiguous (RFC 9112). uvicorn answers other requests that are
    not HTTP.
    """


class HeadTooLarge(
    ServiceError, status=431, slug="head-too-large", title="The headers are too large"
):
    """Request line, headers, trailers and chunk extensions have too many bytes or fields."""


class MalformedBody(
    ServiceError, status=400, slug="malformed-body", title="The body is not valid JSON"
):
    """The body is not valid JSON."""

    def __init__(self, got: str) -> None:
        super().__init__(errors=[FieldError("body", "a JSON object in UTF-8", got)])


class MalformedForm(
    ServiceError,
    status=400,
    slug="malformed-form",
    title="The body is not valid multipart/form-data",
):
    """The body is not valid multipart/form-data."""

    def __init__(self, got: str) -> None:
        expected = "multipart/form-data with the parts image and request (RFC 7578)"
        super().__init__(errors=[FieldError("body", expected, got)])


class InvalidRequest(ServiceError):
    """A field is missing, unknown, of the wrong type or out of range."""

    status, slug, title = INVALID_REQUEST


def invalid(field: str, expected: str, got: str) -> InvalidRequest:
    """Return the error for one offending field."""
    return InvalidRequest(errors=[FieldError(field, expected, got)])


def unknown_version(model_version: int) -> InvalidRequest:
    """Return the error for a requested version that is not loaded."""
    return invalid("model_version", "a loaded version; GET /info lists them", str(model_version))


def invalid_image_id(got: str) -> InvalidRequest:
    """Return the error for a header `X-Image-Id` that is no id."""
    return invalid(
        "X-Image-Id", "one SHA-256 of an image file, 64 lower-case hexadecimal digits", quoted(got)
    )


class ImageNotFetched(InvalidRequest):
    """The service refused an image URL, or could not fetch the image."""

    answered: int | None = None
    """HTTP status of the other server's answer, if any."""


class OtherWeights(
    ServiceError, status=409, slug="other-weights", title="The decoder belongs to other weights"
):
    """The decoder's file is not that of the requested weights, or other weights have been loaded
    since.
    """


class BodyTooLarge(ServiceError, status=413, slug="body-too-large", title="The body is too large"):
    """The body has more bytes than the limit; the size is named if it was announced."""

    def __init__(self, limit: int, got: int | None = None) -> None:
        super().__init__(
            f"expected a body of at most {mib(limit)}, got {'more' if got is None else mib(got)}"
        )


class Unauthorized(ServiceError, status=401, slug="unauthorized", title="An API key is needed"):
    """The API key is missing or unknown."""

    def __init__(self, got: str) -> None:
        super().__init__(
            f"expected a header 'Authorization: Bearer KEY' or 'X-API-Key: KEY', got {got}"
        )

    def headers(self) -> dict[str, str]:
        """Return the authentication challenge (RFC 6750)."""
        return {"WWW-Authenticate": 'Bearer realm="mobile-sam"'}


class ForeignPage(
    ServiceError,
    status=403,
    slug="foreign-page",
    title="The request may come from a foreign web page",
):
    """A page of another origin may have sent the request."""

    @classmethod
    def from_origin(cls, origin: str, host: str) -> ForeignPage:
        """Return the error for a page whose origin is not the service's own, which the Host
        names.
        """
        expected = "expected no Origin, the Host's own, or one in MOBILE_SAM_CORS_ORIGINS"
        return cls(expected, got=f"Origin {quoted(origin)} and Host {quoted(host)}")


class UnknownPath(ServiceError, status=404, slug="not-found", title="Not Found"):
    """There is no such path."""

    @classmethod
    def from_path(cls, path: str, adapter: str | None = None) -> UnknownPath:
        """Return an error that names the path, and the adapter that has it but is switched off."""
        hint = "the page at / lists the paths of the API"
        if adapter:
            hint = f"{adapter} in MOBILE_SAM_INTEGRATIONS adds it"
        return cls(f"there is no path {quoted(path, 200)}; {hint}", logged="unknown path")


class ImageNotCached(
    ServiceError, status=404, slug="image-not-cached", title="The image is not cached"
):
    """The image id is unknown, or the image is no longer cached."""

    def __init__(self, image_id: str) -> None:
        super().__init__(
            errors=[
                FieldError("image_id", "the id of a cached image; send the image again", image_id)
            ]
        )


class WrongMethod(ServiceError, status=405, slug="method-not-allowed", title="Method Not Allowed"):
    """The path does not support the method."""

    def __init__(self, path: str, allowed: Sequence[str], got: str) -> None:
        super().__init__(f"expected {' or '.join(allowed)} for {path}", got=quoted(got, 20))
        self._allowed = allowed

    def headers(self) -> dict[str, str]:
        """Return the methods of the path."""
        return {"Allow": ", ".join(self._allowed)}


class NotAcceptable(
    ServiceError,
    status=406,
    slug="not-acceptable",
    title="The accepted media types are not available",
):
    """The answer has none of the media types that the caller accepts."""

    def __init__(self, available: Sequence[str], got: str) -> None:
        super().__init__(f"expected an Accept header with {', '.join(available)} or */*", got=got)


class SlowBody(ServiceError, status=408, slug="slow-body", title="The body took too long"):
    """The body did not arrive in time."""


class ModelChange(
    ServiceError, status=409, slug="model-change", title="The models were not changed"
):
    """A model was not loaded or unloaded. Triton's message goes to the log, never to the caller."""


class AnswerTooLarge(ServiceError):
    """The answer of `/everything` grew beyond the limit in bytes while it was made."""

    status, slug, title = ANSWER_TOO_LARGE

    def __init__(self, limit: int) -> None:
        expected = f"an answer of at most {mib(limit)} (use fewer points or crops)"
        super().__init__(errors=[FieldError("points_per_side", expected, "more")])


class TooManyRequests(
    ServiceError, status=429, slug="too-many-requests", title="Too many requests"
):
    """The caller exceeded the rate limit; the next request is allowed after `retry_after` whole
    seconds.
    """

    def __init__(self, detail: str, retry_after: int = 1) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class QueueFull(TooManyRequests, slug="queue-full", title="The queue of images is full"):
    """The images do not fit into the queue now."""


class QueueTooLarge(
    ServiceError, status=413, slug="queue-too-large", title="The list of images is too large"
):
    """A list of images to encode takes more room than a caller ever has."""


class UnsupportedMedia(
    ServiceError,
    status=415,
    slug="unsupported-media-type",
    title="The content type is not supported",
):
    """The Content-Type is none that the path takes."""

    def __init__(
        self, got: str, allowed: str = "application/json, multipart/form-data or image/..."
    ) -> None:
        super().__init__(f"expected Content-Type {allowed}", got=shown(got))


class UnsupportedEncoding(
    UnsupportedMedia,
    slug="unsupported-content-encoding",
    title="The content encoding is not supported",
):
    """The body is compressed."""

    def __init__(self, got: str) -> None:
        ServiceError.__init__(
            self, "expected a body without Content-Encoding, or with identity", got=shown(got)
        )

    def headers(self) -> dict[str, str]:
        """Return the supported encoding (RFC 9110, section 12.5.3)."""
        return {"Accept-Encoding": "identity"}


class RejectedByModel(ServiceError):
    """The orchestrator in Triton rejected the request."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail, problem.errors)
        self._problem = problem

    def problem(self) -> Problem:
        """Return the orchestrator's own document."""
        return self._problem


class InferenceFailed(ServiceError, slug="inference-failed", title="The model failed"):
    """Triton answered with an error. Its message goes to the log, never to the caller."""


class Unavailable(ServiceError, status=503):
    """The request may succeed if it is retried later."""

    retry_after = 5


class InferenceUnavailable(
    Unavailable, slug="inference-unavailable", title="The model is not available"
):
    """Triton cannot be reached or is unhealthy; it recovers within seconds."""


class NotLoaded(InferenceUnavailable):
    """The model or the requested version is not loaded."""


class QueueUnavailable(
    Unavailable, slug="queue-unavailable", title="The queue of images cannot be used"
):
    """The database of the images to encode ahead is damaged, or has no space on its disk."""


class Overloaded(Unavailable, slug="overloaded", title="The service is busy"):
    """Too many requests or bytes are in progress."""

    retry_after = 1


class Stopping(Unavailable, slug="stopping", title="The service is stopping"):
    """The service finishes accepted requests and accepts no new ones."""

    def __init__(self, detail: str = STOPPING_DETAIL) -> None:
        super().__init__(detail)


class InferenceTimeout(
    ServiceError, status=504, slug="inference-timeout", title="The model took too long"
):
    """Triton did not answer in time."""
