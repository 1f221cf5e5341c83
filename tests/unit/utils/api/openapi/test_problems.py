"""The problems in the document: complete, with examples equal to those of the service."""

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from orchestrator import images
from orchestrator.costs import Workload
from orchestrator.problems import Rejected
from utils.api.errors import (
    AnswerTooLarge,
    ImageNotCached,
    ModelChange,
    NotAcceptable,
    RejectedByModel,
    ServiceError,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UnknownPath,
    WrongMethod,
)
from utils.api.openapi import document
from utils.api.openapi.problems import (
    IMAGE_PROBLEMS,
    MASK_PROBLEMS,
    MODEL_CHANGE,
    RETRY_STATUSES,
    SERVICE_PROBLEMS,
    UNAUTHORIZED,
    problem_responses,
)
from utils.api.received import parse_body
from utils.api.requests import SegmentRequest
from utils.edge.admission import Admission
from utils.edge.keys import ApiKeys

ROOT = Path(__file__).resolve().parents[5]
PATHS = document(need_key=True, metrics_need_key=True, admin=True)["paths"]
WORK = ("/mobile_sam", "/embed", "/everything")
PROBLEMS = {
    problem.slug: problem
    for problem in (*UNAUTHORIZED, *MODEL_CHANGE, *SERVICE_PROBLEMS, *IMAGE_PROBLEMS, *MASK_PROBLEMS)
}
IN_ORCHESTRATOR = re.compile(r'\(\s*(4\d\d),\s*"([a-z-]+)",\s*"([^"]+)"')


def kinds(error: type[ServiceError]) -> list[type[ServiceError]]:
    return [error, *(inner for kind in error.__subclasses__() for inner in kinds(kind))]


def documented(path: str) -> set[tuple[int, str]]:
    """Return status and slug of each problem of an operation."""
    ((_, operation),) = PATHS[path].items()
    return {
        (int(status), slug)
        for status, answer in operation["responses"].items()
        for slug in answer["content"].get("application/problem+json", {"examples": ()})["examples"]
    }


def test_problems_of_the_service_are_documented():
    # Base classes, problems of the orchestrator, problems without an operation, and problems of admin operations.
    elsewhere = {Unavailable, RejectedByModel, UnknownPath, WrongMethod, ModelChange, AnswerTooLarge, NotAcceptable}
    raised = {(error.status, error.slug) for error in kinds(ServiceError) if error not in elsewhere}
    assert all(raised <= documented(path) for path in WORK)


def test_problems_of_the_orchestrator_are_documented():
    sources = [file.read_text() for file in (ROOT / "orchestrator").glob("*.py")]
    found = {(int(status), slug, title) for text in sources for status, slug, title in IN_ORCHESTRATOR.findall(text)}
    raised = {(status, slug) for status, slug, _ in found}
    examples = {(problem.status, problem.slug, problem.title) for problem in (*IMAGE_PROBLEMS, *MASK_PROBLEMS)}
    assert examples - {(ImageNotCached.status, ImageNotCached.slug, ImageNotCached.title)} <= found
    assert raised <= documented("/mobile_sam")
    too_much = {(422, "answer-too-large"), (422, "too-much-work")}
    assert raised - documented("/embed") == too_much
    assert raised <= documented("/everything")


def test_admin_paths_are_absent_without_admin_keys():
    assert not [path for path in document(need_key=True)["paths"] if path.startswith("/admin")]


@pytest.mark.parametrize("path", PATHS)
def test_error_responses_are_problem_documents_with_their_headers(path):
    ((_, operation),) = PATHS[path].items()
    for status, answer in operation["responses"].items():
        expected = {"X-Request-ID"}
        if int(status) in RETRY_STATUSES:
            expected |= TooManyRequests("").headers().keys()
        if status == "401":
            expected |= Unauthorized("").headers().keys()
        assert set(answer["headers"]) == expected
        if status != "200":
            ((media, content),) = answer["content"].items()
            assert media == "application/problem+json"
            assert content["schema"] == {"$ref": "#/components/schemas/Problem"}


def test_statuses_with_retry_after_are_those_of_the_errors():
    found = {
        error.status
        for error in kinds(ServiceError)
        if error is not RejectedByModel and error("").headers().keys() & {"Retry-After"}
    }
    assert found == set(RETRY_STATUSES)


def test_response_describes_each_of_its_problems():
    (answer,) = problem_responses([PROBLEMS["unsupported-media-type"], PROBLEMS["unsupported-image-format"]]).values()
    assert answer["description"] == (
        "`unsupported-media-type`: The content type is not supported; "
        "`unsupported-image-format`: The image format is not supported"
    )
    examples = answer["content"]["application/problem+json"]["examples"]
    assert list(examples) == ["unsupported-media-type", "unsupported-image-format"]


def send_invalid_fields() -> None:
    parse_body(json.dumps({"pos_coords": [[1, 2, 3]], "labels": [5]}).encode(), SegmentRequest)


def exceed_admission() -> None:
    admission = Admission(32, max_body_bytes=1)
    with contextlib.ExitStack() as slots:
        for caller in range(33):
            slots.enter_context(admission.slot(str(caller)))


def send_while_stopping() -> None:
    admission = Admission(32, max_body_bytes=1)
    admission.stop()
    admission.check()


def send_without_key() -> None:
    keys = ApiKeys.of("a:0123456789abcdef0123456789abcdef", None)
    assert keys is not None
    keys.name_of([])


def send_large_image() -> None:
    file = io.BytesIO()
    Image.new("1", (6000, 5000)).save(file, "PNG")
    images.open_image(file.getvalue(), 25_000_000)


@pytest.mark.parametrize(
    ("slug", "fail"),
    [
        ("malformed-body", lambda: parse_body(b"hello", SegmentRequest)),
        ("invalid-request", send_invalid_fields),
        ("overloaded", exceed_admission),
        ("stopping", send_while_stopping),
        ("unauthorized", send_without_key),
        ("image-too-large", send_large_image),
        ("unsupported-image-format", lambda: images.open_image(b"GIF89a", 1)),
        ("invalid-image", lambda: images.open_image(b"this is not an image"[:19], 1)),
        ("answer-too-large", lambda: Workload(256, 256, "json", "overlay").check((683, 1024), 160 * 2**20)),
        ("too-much-work", lambda: Workload(256, 256, "polygon", "overlay").check((3000, 4000), 160 * 2**20)),
    ],
)
def test_example_equals_the_problem_of_the_service(slug, fail):
    with pytest.raises((ServiceError, Rejected)) as raised:
        fail()
    assert document_of(raised.value) == PROBLEMS[slug].as_json()


def document_of(error: Any) -> dict[str, Any]:
    """Return the problem document of an error."""
    if isinstance(error, ServiceError):
        return error.problem().as_json()
    detail = "; ".join("{field}: expected {expected}, got {got}".format(**each) for each in error.errors)
    document = {"type": f"urn:mobile-sam:{error.slug}", "title": error.title, "status": error.status}
    return {**document, "detail": detail, "errors": error.errors}
