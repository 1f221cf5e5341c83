"""The problems that operations return, each with an example from the service."""

from collections.abc import Iterable
from typing import Any

from orchestrator import problems
from utils import errors
from utils.api.accept import ANSWER_TYPES
from utils.errors import MEDIA_TYPE, FieldError, Problem, summary
from utils.settings import Settings

RETRY_STATUSES = (429, 503)
REFERENCE = "#/components/schemas/{model}"
DEFAULTS = Settings.model_fields


def _rejected(problem: tuple[int, str, str], field: str, expected: str, got: str) -> Problem:
    """Return a problem of the orchestrator about one field."""
    error = FieldError(field, expected, got)
    return Problem(*problem, summary([error]), [error])


UNAUTHORIZED = errors.Unauthorized("no key").problem()
UNAVAILABLE = errors.InferenceUnavailable(
    "the inference server is starting or restarting; retry later"
).problem()
NOT_READY = (UNAVAILABLE, errors.Stopping().problem())
FOREIGN_PAGE = errors.ForeignPage.from_origin("https://a.example", "localhost:3000").problem()
NOT_LOADED = "Triton could not load mobile_sam; what was loaded stays loaded: see the service's log"
MODEL_CHANGE = (FOREIGN_PAGE, errors.ModelChange(NOT_LOADED).problem())
NOT_ACCEPTABLE = errors.NotAcceptable(ANSWER_TYPES, "'text/html'").problem()
INVALID_FIELDS = [
    FieldError("pos_coords[0]", "[x, y]", "a list of 3"),
    FieldError("labels[0]", "0, 1, 2 or 3", "5"),
]
SERVICE: tuple[Problem, ...] = (
    errors.MalformedRequest(
        "expected either Content-Length or Transfer-Encoding, got both"
    ).problem(),
    errors.MalformedBody("invalid JSON: expected value at line 1 column 1").problem(),
    errors.MalformedForm("2000 bytes without its end").problem(),
    FOREIGN_PAGE,
    errors.SlowBody("expected the body within 30 s, got 65536 bytes of 2000000").problem(),
    errors.BodyTooLarge(DEFAULTS["max_body_bytes"].default, 41_943_040).problem(),
    errors.UnsupportedMedia("text/plain").problem(),
    errors.UnsupportedEncoding("gzip").problem(),
    errors.InvalidRequest(errors=INVALID_FIELDS).problem(),
    errors.TooManyRequests("rate limit exceeded (10 requests per second); retry in 1 s").problem(),
    errors.HeadTooLarge(
        "expected a request line, headers and trailers of at most 65536 bytes together, got more"
    ).problem(),
    errors.ServiceError("unexpected error; see the server's log").problem(),
    errors.InferenceFailed(
        "the model could not process this request; see the server's log"
    ).problem(),
    *NOT_READY,
    errors.Overloaded(
        "requests in progress: a caller's share is 24, this one has 24 and asks for 1; retry later"
    ).problem(),
    errors.InferenceTimeout("no response within 55 s").problem(),
)
"""Problems of inference requests found by the service."""
WITHOUT_BODY = tuple(problem for problem in SERVICE if problem.status not in {400, 408, 413, 415})
"""The same for requests without a body."""
LARGEST_IMAGE = (
    "at most 25000000 pixels (the client's max_side, or --max-side, scales larger images down)"
)
READABLE = "a PNG, JPEG or WebP file"
IMAGE: tuple[Problem, ...] = (
    errors.ImageNotCached("no-such-image").problem(),
    _rejected(problems.IMAGE_TOO_LARGE, "input_image", LARGEST_IMAGE, "6000 x 5000 = 30000000"),
    _rejected(problems.UNSUPPORTED_IMAGE, "input_image", READABLE, "GIF"),
    _rejected(problems.UNREADABLE_IMAGE, "input_image", READABLE, "19 bytes that are not an image"),
)
"""Problems of the image found by the orchestrator in Triton."""
QUEUE_UNAVAILABLE = errors.QueueUnavailable(
    "the queue of images cannot be used: no space is left on the disk of the embedding cache"
).problem()
EACH = "(2 MiB for each embedding, and the files)"
QUEUE = (
    errors.QueueFull(
        "room in the queue: a caller's share is 768 MiB, this one has 500 MiB and asks for 300 MiB;"
        " retry later",
        5,
    ).problem(),
    errors.QueueTooLarge(
        f"expected images for 512 MiB of the embedding cache, got 640 MiB {EACH}; send fewer"
    ).problem(),
    QUEUE_UNAVAILABLE,
)
"""Problems of lists of images."""
JOB = (
    errors.UnknownPath("there is no such job of this caller, or no longer").problem(),
    errors.invalid_image_id("an id").problem(),
    QUEUE_UNAVAILABLE,
)
SERVED, OTHER = "6dbb90523a35330fedd7f1d3dfc66f995213d81b29a5ca8108dbcdd4e37d6c2f", "0" * 64
OTHER_WEIGHTS = errors.OtherWeights(
    errors=[FieldError("weights", f"{SERVED}, which are loaded", OTHER)]
).problem()
LARGEST_WORK = (
    "at most 62 objects as polygon with picture overlay on a 4000 x 3000 image: 25 s of work"
)
LARGEST_ANSWER = (
    "at most 118 objects as json with picture overlay on a 1024 x 683 image: 167772160 bytes"
)
WORK = _rejected(problems.TOO_MUCH_WORK, "prompts", LARGEST_WORK, "256: 100 s")
MASKS = (
    _rejected(problems.ANSWER_TOO_LARGE, "prompts", LARGEST_ANSWER, "256: 360365924 bytes"),
    WORK,
)
"""Problems of the requested masks found by the orchestrator in Triton."""
RECORDS = (errors.AnswerTooLarge(DEFAULTS["max_answer_bytes"].default).problem(), WORK)
"""Problems of the records of `/everything`."""


def reference(model: type) -> dict[str, str]:
    """Return a reference to the schema of a model."""
    return {"$ref": REFERENCE.format(model=model.__name__)}


def problem_responses(problems_of_operation: Iterable[Problem]) -> dict[str, Any]:
    """Return a response for each status with an example of each of its problems."""
    by_status: dict[int, list[Problem]] = {}
    for problem in sorted(problems_of_operation, key=lambda problem: problem.status):
        by_status.setdefault(problem.status, []).append(problem)
    responses = {}
    for status, same_status in by_status.items():
        examples = {
            problem.slug: {"summary": problem.title, "value": problem.as_json()}
            for problem in same_status
        }
        content = {MEDIA_TYPE: {"schema": reference(Problem), "examples": examples}}
        described = "; ".join(f"`{problem.slug}`: {problem.title}" for problem in same_status)
        responses[str(status)] = response(status, described, content)
    return responses


def response(status: int, description: str, content: dict[str, Any]) -> dict[str, Any]:
    """Return a response with the headers of its status."""
    headers = {"X-Request-ID": "RequestId"}
    if status in RETRY_STATUSES:
        headers["Retry-After"] = "RetryAfter"
    if status == errors.Unauthorized.status:
        headers["WWW-Authenticate"] = "Authenticate"
    references = {
        name: {"$ref": f"#/components/headers/{header}"} for name, header in headers.items()
    }
    return {"description": description, "headers": references, "content": content}
