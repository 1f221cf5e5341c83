"""The problems that operations answer: each is told by an example of it, in the words that the service has for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from utils.edge.admission import STOPS
from utils.edge.keys import EXPECTED
from utils.edge.protocol import MAX_HEAD_BYTES
from utils.errors import (
    MEDIA_TYPE,
    AnswerTooLarge,
    BodyTooLarge,
    FieldError,
    HeadTooLarge,
    InferenceFailed,
    InferenceTimeout,
    InferenceUnavailable,
    InvalidRequest,
    MalformedBody,
    MalformedRequest,
    ModelChange,
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
from utils.openapi.schemas import reference
from utils.settings import Settings

RETRY_STATUSES = (429, 503)


def _rejected(status: int, slug: str, title: str, error: FieldError) -> Problem:
    """What the orchestrator in Triton says of one field."""
    return Problem(status, slug, title, summary([error]), [error])


NO_KEY = (Unauthorized(f"{EXPECTED}, got no key").problem(),)
NOT_READY = (
    InferenceUnavailable("the inference server is starting or restarting; try again").problem(),
    Stopping(STOPS).problem(),
)

NOT_CHANGED = (
    ModelChange("Triton could not load mobile_sam; what was loaded stays loaded: see the service's log").problem(),
)
REFUSALS: tuple[Problem, ...] = (
    MalformedRequest("expected one Host header, got 0").problem(),
    MalformedBody.of("expected value at line 1 column 1").problem(),
    SlowBody("expected the body within 30 s, got 65536 bytes of 2000000").problem(),
    BodyTooLarge.of(33_554_432, 41_943_040).problem(),
    UnsupportedMedia.of("text/plain").problem(),
    InvalidRequest.of(
        [FieldError("pos_coords[0]", "[x, y]", "a list of 3"), FieldError("labels[0]", "0, 1, 2 or 3", "5")]
    ).problem(),
    TooManyRequests("expected at most 10 per second, got more; the next is let through in 1 s").problem(),
    HeadTooLarge.of_bytes(MAX_HEAD_BYTES).problem(),
    ServiceError("an unexpected error; the server's log says more").problem(),
    InferenceFailed("the model could not process this request; the server's log says why").problem(),
    *NOT_READY,
    Overloaded("32 requests are being answered or wait already; try again in a moment").problem(),
    InferenceTimeout("no answer within 55 s").problem(),
)
"""Of a request that costs work, by this process."""

REJECTIONS: tuple[Problem, ...] = (
    _rejected(
        404,
        "image-not-cached",
        "The image is not known (any more)",
        FieldError(
            "image_id",
            "the id of an image this service still has; send the image itself again, as input_image",
            "no-such-image",
        ),
    ),
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
        FieldError("input_image", "a PNG, JPEG or WebP file", "19 bytes that are no image"),
    ),
)
"""Of what was sent, by the orchestrator in Triton."""

TOO_MUCH: tuple[Problem, ...] = (
    _rejected(
        422,
        "answer-too-large",
        "The answer would be too large",
        FieldError(
            "prompts",
            "at most 118 as json with the picture overlay on an image of 1024 x 683: 167772160 bytes",
            "256: 360365924 bytes",
        ),
    ),
    _rejected(
        422,
        "too-much-work",
        "The answer would take too long",
        FieldError(
            "prompts",
            "at most 62 as polygon with the picture overlay on an image of 4000 x 3000: 25 s of work",
            "256: 100 s",
        ),
    ),
)
"""Of the masks that were asked for, by the same."""
TOO_MANY_RECORDS = (AnswerTooLarge.of(Settings().max_answer_bytes).problem(),)


def problem_answers(problems: Iterable[Problem]) -> dict[str, Any]:
    """An answer for each status, which lists the problems that have it, with an example of each."""
    by_status: dict[int, list[Problem]] = {}
    for problem in problems:
        by_status.setdefault(problem.status, []).append(problem)
    return {str(status): _problem_answer(status, alike) for status, alike in sorted(by_status.items())}


def _problem_answer(status: int, problems: list[Problem]) -> dict[str, Any]:
    examples = {each.slug: {"summary": each.title, "value": each.as_json()} for each in problems}
    content = {MEDIA_TYPE: {"schema": reference("Problem"), "examples": examples}}
    return answer(status, "; ".join(f"`{each.slug}`: {each.title}" for each in problems), content)


def answer(status: int, description: str, content: dict[str, Any]) -> dict[str, Any]:
    """An answer with the headers that one of that status has."""
    headers = {"X-Request-ID": "RequestId"}
    if status in RETRY_STATUSES:
        headers["Retry-After"] = "RetryAfter"
    if status == Unauthorized.status:
        headers["WWW-Authenticate"] = "Authenticate"
    references = {name: {"$ref": f"#/components/headers/{header}"} for name, header in headers.items()}
    return {"description": description, "headers": references, "content": content}
