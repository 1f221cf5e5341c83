"""The problems in the document: complete, with examples as the service sends them."""

import io
import json
from typing import Any, cast

import pytest
from PIL import Image

from orchestrator import images
from orchestrator import problems as rejections
from orchestrator.costs import Workload
from orchestrator.problems import Rejected
from tests.unit.utils.test_errors import kinds
from utils import errors
from utils.api.openapi import document, problems
from utils.api.request_body import parse_body
from utils.api.requests import SegmentRequest
from utils.edge.admission import Admission
from utils.edge.keys import ApiKeys
from utils.errors import FieldError, Problem, ServiceError, summary

PATHS = document(need_key=True, metrics_need_key=True, admin=True)["paths"]
PROBLEMS = {
    each.slug: each
    for each in (problems.UNAUTHORIZED, *problems.SERVICE, *problems.IMAGE, *problems.MASKS)
}
NOT_IN_ALL = {
    errors.Unavailable,  # a base class
    errors.RejectedByModel,  # has the orchestrator's problems
    errors.UnknownPath,
    errors.WrongMethod,
    errors.ModelChange,
    errors.OtherWeights,
    errors.AnswerTooLarge,
    errors.NotAcceptable,
    errors.QueueFull,
    errors.QueueTooLarge,
    errors.QueueUnavailable,
}
TOO_MUCH = {"answer-too-large", "too-much-work"}


@pytest.mark.parametrize("path", ["/mobile_sam", "/embed", "/everything"])
def test_problems_of_service_and_orchestrator_are_documented(path):
    raised = {(str(error.status), error.slug) for error in kinds() if error not in NOT_IN_ALL}
    raised |= {
        (str(value[0]), value[1]) for value in vars(rejections).values() if isinstance(value, tuple)
    }
    documented = {
        (status, slug)
        for status, answer in PATHS[path]["post"]["responses"].items()
        for slug in answer["content"].get("application/problem+json", {"examples": ()})["examples"]
    }
    assert documented >= {each for each in raised if path != "/embed" or each[1] not in TOO_MUCH}


@pytest.mark.parametrize("path", PATHS)
def test_error_responses_are_problem_documents_with_their_headers(path):
    more = {"401": {"WWW-Authenticate"}, "429": {"Retry-After"}, "503": {"Retry-After"}}
    assert {
        "429",
        *(str(error.status) for error in kinds() if error.retry_after),
    } == more.keys() - {"401"}
    responses = [
        each for operation in PATHS[path].values() for each in operation["responses"].items()
    ]
    for status, answer in responses:
        of_images = {"ETag", "X-Image-Orientation"} if status == "200" else set()
        assert set(answer["headers"]) - of_images == {"X-Request-ID"} | more.get(status, set())
        if status not in {"200", "202", "304"}:
            ((media, content),) = answer["content"].items()
            assert media == "application/problem+json"
            assert content["schema"] == {"$ref": "#/components/schemas/Problem"}


LARGE: dict[str, Any] = {"objects": 256, "masks": 256, "style": "overlay"}
INVALID = json.dumps({"pos_coords": [[1, 2, 3]], "labels": [5]}).encode()
KEYS = cast("ApiKeys", ApiKeys.from_setting("a:0123456789abcdef", None))


def ask(requests: int = 0, *, stopping: bool = False) -> None:
    admission = Admission(32, bodies_bytes=1)
    if stopping:
        admission.stop(10)
    for _ in range(requests):
        admission.requests.take("", 1, lambda: None)
    admission.check()


def large_image() -> bytes:
    file = io.BytesIO()
    Image.new("1", (6000, 5000)).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize(
    ("slug", "fail"),
    [
        ("malformed-body", lambda: parse_body(b"hello", SegmentRequest)),
        ("invalid-request", lambda: parse_body(INVALID, SegmentRequest)),
        ("overloaded", lambda: ask(24)),
        ("stopping", lambda: ask(stopping=True)),
        ("unauthorized", lambda: KEYS.name_of([])),
        ("image-too-large", lambda: images.open_image(large_image(), 25_000_000)),
        ("unsupported-image-format", lambda: images.open_image(b"GIF89a", 1)),
        ("invalid-image", lambda: images.open_image(b"this is not an image"[:19], 1)),
        (
            "answer-too-large",
            lambda: Workload(mask_format="json", **LARGE).check((683, 1024), 160 * 2**20),
        ),
        (
            "too-much-work",
            lambda: Workload(mask_format="polygon", **LARGE).check((3000, 4000), 160 * 2**20),
        ),
    ],
)
def test_example_equals_the_problem_of_the_service(slug, fail):
    with pytest.raises((ServiceError, Rejected)) as raised:
        fail()
    shown, error = PROBLEMS[slug], cast("ServiceError | Rejected", raised.value)
    if isinstance(error, ServiceError):
        assert error.problem() == shown
    else:
        found = [FieldError(**each) for each in error.errors]
        assert Problem(error.status, error.slug, error.title, summary(found), found) == shown
