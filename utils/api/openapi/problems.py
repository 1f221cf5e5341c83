"""The problems that operations return, each with an example from the service."""

from collections.abc import Iterable
from typing import Any

from utils.api.errors import (
    MEDIA_TYPE,
    AnswerTooLarge,
    BodyTooLarge,
    FieldError,
    ForeignPage,
    HeadTooLarge,
    ImageNotCached,
    InferenceFailed,
    InferenceTimeout,
    InferenceUnavailable,
    InvalidRequest,
    MalformedBody,
    MalformedForm,
    MalformedRequest,
    ModelChange,
    NotAcceptable,
    Overloaded,
    Problem,
    ServiceError,
    SlowBody,
    Stopping,
    TooManyRequests,
    Unauthorized,
    UnsupportedMedia,
    summary,
)
from utils.api.openapi.schemas import reference
from utils.api.received import ANSWER_TYPES
from utils.edge.admission import STOPPING_DETAIL
from utils.edge.keys import EXPECTED_KEY
from utils.edge.origins import EXPECTED_ORIGIN
from utils.edge.protocol import MAX_HEAD_BYTES
from utils.settings import Settings

RETRY_STATUSES = (429, 503)


def _rejected(status: int, slug: str, title: str, error: FieldError) -> Problem:
    """Return a problem of the orchestrator about one field."""
    return Problem(status, slug, title, summary([error]), [error])


UNAUTHORIZED = (Unauthorized(f"{EXPECTED_KEY}, got no key").problem(),)
UNAVAILABLE = InferenceUnavailable("the inference server is starting or restarting; retry later").problem()
NOT_READY = (UNAVAILABLE, Stopping(STOPPING_DETAIL).problem())
FOREIGN_PAGE = ForeignPage.of(EXPECTED_ORIGIN, "Origin 'https://a.example' and Host 'localhost:3000'").problem()
MODEL_CHANGE = (
    FOREIGN_PAGE,
    ModelChange("Triton could not load mobile_sam; what was loaded stays loaded: see the service's log").problem(),
)
NOT_ACCEPTABLE = NotAcceptable.of(ANSWER_TYPES, "'text/html'").problem()
SERVICE_PROBLEMS: tuple[Problem, ...] = (
    MalformedRequest("expected one Host header, got 0").problem(),
    MalformedBody.of("expected value at line 1 column 1").problem(),
    MalformedForm.of("2000 bytes without its end").problem(),
    FOREIGN_PAGE,
    SlowBody("expected the body within 30 s, got 65536 bytes of 2000000").problem(),
    BodyTooLarge.of(Settings().max_body_bytes, 41_943_040).problem(),
    UnsupportedMedia.of("text/plain").problem(),
    InvalidRequest.of(
        [FieldError("pos_coords[0]", "[x, y]", "a list of 3"), FieldError("labels[0]", "0, 1, 2 or 3", "5")]
    ).problem(),
    TooManyRequests("rate limit exceeded (10 requests per second); retry in 1 s").problem(),
    HeadTooLarge.of_bytes(MAX_HEAD_BYTES).problem(),
    ServiceError("unexpected error; see the server's log").problem(),
    InferenceFailed("the model could not process this request; see the server's log").problem(),
    *NOT_READY,
    Overloaded("too many requests in progress (32); retry later").problem(),
    InferenceTimeout("no response within 55 s").problem(),
)
"""Problems of inference requests found by the service."""

IMAGE_PROBLEMS: tuple[Problem, ...] = (
    ImageNotCached.of("no-such-image").problem(),
    _rejected(
        413,
        "image-too-large",
        "The image has too many pixels",
        FieldError("input_image", "at most 25000000 pixels", "6000 x 5000 = 30000000"),
    ),
    _rejected(
        415,
        "unsupported-image-format",
        "The image format is not supported",
        FieldError("input_image", "a PNG, JPEG or WebP file", "GIF"),
    ),
    _rejected(
        422,
        "invalid-image",
        "The image cannot be read",
        FieldError("input_image", "a PNG, JPEG or WebP file", "19 bytes that are not an image"),
    ),
)
"""Problems of the image found by the orchestrator in Triton."""

MASK_PROBLEMS: tuple[Problem, ...] = (
    _rejected(
        422,
        "answer-too-large",
        "The answer would be too large",
        FieldError(
            "prompts",
            "at most 118 objects as json with picture overlay on a 1024 x 683 image: 167772160 bytes",
            "256: 360365924 bytes",
        ),
    ),
    _rejected(
        422,
        "too-much-work",
        "The answer would take too long",
        FieldError(
            "prompts",
            "at most 62 objects as polygon with picture overlay on a 4000 x 3000 image: 25 s of work",
            "256: 100 s",
        ),
    ),
)
"""Problems of the requested masks found by the orchestrator in Triton."""
RECORDS_TOO_LARGE = (AnswerTooLarge.of(Settings().max_answer_bytes).problem(),)


def problem_responses(problems: Iterable[Problem]) -> dict[str, Any]:
    """Return a response for each status with an example of each of its problems."""
    by_status: dict[int, list[Problem]] = {}
    for problem in problems:
        by_status.setdefault(problem.status, []).append(problem)
    return {str(status): _problem_response(status, found) for status, found in sorted(by_status.items())}


def _problem_response(status: int, problems: list[Problem]) -> dict[str, Any]:
    examples = {each.slug: {"summary": each.title, "value": each.as_json()} for each in problems}
    content = {MEDIA_TYPE: {"schema": reference("Problem"), "examples": examples}}
    return response(status, "; ".join(f"`{each.slug}`: {each.title}" for each in problems), content)


def response(status: int, description: str, content: dict[str, Any]) -> dict[str, Any]:
    """Return a response with the headers of its status."""
    headers = {"X-Request-ID": "RequestId"}
    if status in RETRY_STATUSES:
        headers["Retry-After"] = "RetryAfter"
    if status == Unauthorized.status:
        headers["WWW-Authenticate"] = "Authenticate"
    references = {name: {"$ref": f"#/components/headers/{header}"} for name, header in headers.items()}
    return {"description": description, "headers": references, "content": content}
