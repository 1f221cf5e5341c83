"""Every error the service raises on purpose, and the RFC 9457 document each becomes.

    ServiceError                    one base to catch; carries the HTTP status and the problem type
    ├── MalformedRequest      400   not HTTP as RFC 9112 has it
    ├── MalformedBody         400   the body is no JSON
    ├── Unauthorized          401   no API key, or none that is known
    ├── UnknownPath           404   no such path
    ├── WrongMethod           405   a path, but not with this method
    ├── SlowBody              408   the body did not arrive in time
    ├── ModelChange           409   models cannot be loaded or unloaded, or not now
    ├── BodyTooLarge          413   more bytes than the service takes
    ├── UnsupportedMedia      415   a Content-Type that is not JSON
    ├── InvalidRequest        422   a field is missing, unknown, of the wrong type or out of range
    ├── AnswerTooLarge        422   the answer has more bytes than the service sends
    ├── TooManyRequests       429   a caller beyond their rate
    ├── HeadTooLarge          431   too many bytes or fields of headers and trailers
    ├── RejectedByModel       4xx   the image cannot be used; status and type come from the orchestrator
    ├── InferenceFailed       500   Triton answered with an error: a fault of ours, never of the caller
    ├── Unavailable           503   not now: try again after a while
    │   ├── InferenceUnavailable    Triton is starting, restarting or ill
    │   │   └── NotLoaded           the model, or the version that was asked for, is not loaded
    │   ├── Overloaded              as many requests as can wait are waiting
    │   └── Stopping                the service has been told to stop
    └── InferenceTimeout      504   Triton did not answer in time

Problem types are `urn:mobile-sam:` followed by the slug below. `errors` lists each offending field with what was
expected and what came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import orjson

from utils.text import quoted, shown

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:mobile-sam:"
MAX_FIELD, MAX_VALUE, MAX_DETAIL = 80, 1000, 4000
"""Characters of a field's path, of what was expected or came, and of a problem's detail; longer ones are cut."""


@dataclass(frozen=True)
class FieldError:
    """One offending field of a request. All texts are made printable and bounded, wherever they come from."""

    field: str
    """Path of the field, such as `pos_coords[1][0]`."""
    expected: str
    got: str

    def __post_init__(self) -> None:
        """Make the texts safe for a log line and a problem document."""
        for name, limit in (("field", MAX_FIELD), ("expected", MAX_VALUE), ("got", MAX_VALUE)):
            object.__setattr__(self, name, shown(getattr(self, name), limit))

    def as_json(self) -> dict[str, str]:
        """The member of a problem's `errors` list."""
        return {"field": self.field, "expected": self.expected, "got": self.got}


@dataclass(frozen=True)
class Problem:
    """An RFC 9457 problem document with its HTTP status."""

    status: int
    slug: str
    title: str
    detail: str
    errors: Sequence[FieldError] = ()
    headers: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The document's members."""
        document: dict[str, Any] = {
            "type": TYPE_PREFIX + self.slug,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }
        if self.errors:
            document["errors"] = [error.as_json() for error in self.errors]
        return document

    def encode(self) -> bytes:
        """The document as UTF-8 JSON."""
        return orjson.dumps(self.as_json())


def summary(errors: Sequence[FieldError], *, got: bool = True) -> str:
    """The first few errors in one line; without `got`, nothing of the values that came."""
    told = [f"{error.field}: expected {error.expected}" + f", got {error.got}" * got for error in errors[:3]]
    more = f" (and {len(errors) - 3} more)" if len(errors) > 3 else ""
    return "; ".join(told) + more


class ServiceError(Exception):
    """Base of everything the service answers with a problem document."""

    status: ClassVar[int] = 500
    slug: ClassVar[str] = "internal-error"
    title: ClassVar[str] = "The service failed"

    def __init__(self, detail: str, errors: Sequence[FieldError] = (), *, logged: str = "") -> None:
        """Make the error.

        Args:
            detail: what the caller is told.
            errors: offending fields.
            logged: what the log says, where the detail quotes what was sent. Where fields offend, the log names them
                and what was expected.
        """
        super().__init__(detail)
        self.detail = shown(detail, MAX_DETAIL)
        self.errors = tuple(errors)
        self.logged = shown(logged or summary(errors, got=False) or detail, MAX_DETAIL)

    def problem(self) -> Problem:
        """The document that tells a caller about this error."""
        return Problem(self.status, self.slug, self.title, self.detail, self.errors, self.headers())

    def headers(self) -> dict[str, str]:
        """Response headers beside the document's own."""
        return {}


class MalformedRequest(ServiceError):
    """The request is not HTTP as RFC 9112 has it."""

    status = 400
    slug = "malformed-request"
    title = "The request is not valid HTTP"


class HeadTooLarge(ServiceError):
    """Request line, headers, trailers and chunk extensions have more bytes, or more fields, than the service takes."""

    status = 431
    slug = "head-too-large"
    title = "The headers are too large"

    @classmethod
    def of_bytes(cls, limit: int) -> HeadTooLarge:
        """An error that names the limit in bytes."""
        return cls(f"expected a request line, headers and trailers of at most {limit} bytes together, got more")

    @classmethod
    def of_fields(cls, limit: int) -> HeadTooLarge:
        """An error that names the largest number of fields."""
        return cls(f"expected at most {limit} headers and trailers together, got more")


class MalformedBody(ServiceError):
    """The body is not a JSON document."""

    status = 400
    slug = "malformed-body"
    title = "The body is not valid JSON"

    @classmethod
    def of(cls, got: str) -> MalformedBody:
        """An error that says what came in place of JSON."""
        error = FieldError("body", "a JSON object in UTF-8", got)
        return cls(summary([error]), [error])


class InvalidRequest(ServiceError):
    """A field is missing, unknown, of the wrong type or out of range."""

    status = 422
    slug = "invalid-request"
    title = "The request is not valid"

    @classmethod
    def of(cls, errors: Sequence[FieldError]) -> InvalidRequest:
        """An error whose detail spells out the first few fields."""
        return cls(summary(errors), errors)


class BodyTooLarge(ServiceError):
    """The body has more bytes than the service takes."""

    status = 413
    slug = "body-too-large"
    title = "The body is too large"

    @classmethod
    def of(cls, limit: int, got: int | None = None) -> BodyTooLarge:
        """An error that names the limit, and the announced length where there was one (both in bytes)."""
        came = f"{got} bytes" if got is not None else "more"
        return cls(f"expected a body of at most {limit} bytes, got {came}")


class Unauthorized(ServiceError):
    """No API key came, or one that is not known."""

    status = 401
    slug = "unauthorized"
    title = "An API key is needed"

    def headers(self) -> dict[str, str]:
        """How a key is to be presented (RFC 6750)."""
        return {"WWW-Authenticate": 'Bearer realm="mobile-sam"'}


class UnknownPath(ServiceError):
    """The service has no such path."""

    status = 404
    slug = "not-found"
    title = "Not Found"

    @classmethod
    def of(cls, path: str) -> UnknownPath:
        """An error that names the path."""
        expected = "expected a path of this service"
        return cls(f"{expected}, got {quoted(path, 200)}; the page at / lists them", logged=expected)


class WrongMethod(ServiceError):
    """The path is there, but not with this method."""

    status = 405
    slug = "method-not-allowed"
    title = "Method Not Allowed"

    def __init__(self, detail: str, allowed: Sequence[str] = (), *, logged: str = "") -> None:
        super().__init__(detail, logged=logged)
        self._allowed = allowed

    @classmethod
    def of(cls, path: str, allowed: Sequence[str], got: str) -> WrongMethod:
        """An error that names a path of this service, its methods, and the one that came."""
        expected = f"expected {' or '.join(allowed)} for {path}"
        return cls(f"{expected}, got {quoted(got, 20)}", allowed, logged=expected)

    def headers(self) -> dict[str, str]:
        """The methods of the path."""
        return {"Allow": ", ".join(self._allowed)}


class SlowBody(ServiceError):
    """The body did not arrive in time."""

    status = 408
    slug = "slow-body"
    title = "The body took too long"


class ModelChange(ServiceError):
    """A model was not loaded or unloaded. Triton's text goes to the log, never to the caller."""

    status = 409
    slug = "model-change"
    title = "The models were not changed"


class AnswerTooLarge(ServiceError):
    """The answer has more bytes than the service sends."""

    status = 422
    slug = "answer-too-large"
    title = "The answer would be too large"

    @classmethod
    def of(cls, limit: int) -> AnswerTooLarge:
        """An error about an answer whose size shows only while it is made; the limit is in bytes."""
        error = FieldError("points_per_side", f"an answer of at most {limit} bytes: fewer clicks or crops", "more")
        return cls(summary([error]), [error])


class TooManyRequests(ServiceError):
    """A caller asks more often than they may."""

    status = 429
    slug = "too-many-requests"
    title = "Too many requests"

    def __init__(self, detail: str, retry_after: int = 1) -> None:
        """Make the error.

        Args:
            detail: what the limit is.
            retry_after: whole seconds until the next request is let through.
        """
        super().__init__(detail)
        self._retry_after = retry_after

    def headers(self) -> dict[str, str]:
        """When to try again."""
        return {"Retry-After": str(self._retry_after)}


class UnsupportedMedia(ServiceError):
    """The Content-Type is not JSON."""

    status = 415
    slug = "unsupported-media-type"
    title = "The content type is not supported"

    @classmethod
    def of(cls, got: str) -> UnsupportedMedia:
        """An error that says what came in place of JSON."""
        expected = "expected Content-Type application/json"
        return cls(f"{expected}, got {shown(got)}", logged=expected)


class RejectedByModel(ServiceError):
    """The orchestrator in Triton found fault with what the caller sent."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail, problem.errors)
        self._problem = problem

    def problem(self) -> Problem:
        """The document as the orchestrator wrote it."""
        return self._problem


class InferenceFailed(ServiceError):
    """Triton answered with an error. Its text goes to the log, never to the caller."""

    slug = "inference-failed"
    title = "The model failed"


class Unavailable(ServiceError):
    """Not now: what a caller asked for may be had a little later."""

    status = 503
    retry_after: ClassVar[int] = 5
    """Seconds after which a caller may try again."""

    def headers(self) -> dict[str, str]:
        """When to try again."""
        return {"Retry-After": str(self.retry_after)}


class InferenceUnavailable(Unavailable):
    """Triton cannot be reached, or does not work; it comes back within seconds."""

    slug = "inference-unavailable"
    title = "The model is not available"


class NotLoaded(InferenceUnavailable):
    """The model, or the version of it that was asked for, is not loaded."""


class Overloaded(Unavailable):
    """As many requests as the service lets wait are waiting."""

    slug = "overloaded"
    title = "The service is busy"
    retry_after = 1


class Stopping(Unavailable):
    """The service finishes what it has accepted, and takes nothing new."""

    slug = "stopping"
    title = "The service is stopping"


class InferenceTimeout(ServiceError):
    """Triton did not answer in time."""

    status = 504
    slug = "inference-timeout"
    title = "The model took too long"
