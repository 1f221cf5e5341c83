"""The problems that the document tells of: all there are, in the words that the service has for them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import mobile_sam_images as images
import pytest
from mobile_sam_costs import Wish
from mobile_sam_problems import Rejected

from tests.fuzz.png_files import SIGNATURE, chunk, header
from utils.edge.admission import Admission
from utils.edge.keys import ApiKeys
from utils.errors import (
    AnswerTooLarge,
    BodyTooLarge,
    ModelChange,
    RejectedByModel,
    ServiceError,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UnknownPath,
    WrongMethod,
)
from utils.openapi import document
from utils.openapi.problems import (
    NO_KEY,
    NOT_CHANGED,
    REFUSALS,
    REJECTIONS,
    RETRY_STATUSES,
    TOO_MUCH,
    problem_answers,
)
from utils.schemas import SegmentRequest, parse_body
from utils.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
PATHS = document(need_key=True, metrics_need_key=True, admin=True)["paths"]
WORK = ("/mobile_sam", "/embed", "/everything")
TOLD = {problem.slug: problem for problem in (*NO_KEY, *NOT_CHANGED, *REFUSALS, *REJECTIONS, *TOO_MUCH)}
IN_ORCHESTRATOR = re.compile(r'\(\s*(4\d\d),\s*"([a-z-]+)",\s*"([^"]+)"')


def kinds(error: type[ServiceError]) -> list[type[ServiceError]]:
    return [error, *(inner for kind in error.__subclasses__() for inner in kinds(kind))]


def told_of(path: str) -> set[tuple[int, str]]:
    """Status and slug of each problem that an operation tells of."""
    ((_, operation),) = PATHS[path].items()
    return {
        (int(status), slug)
        for status, answer in operation["responses"].items()
        for slug in answer["content"].get("application/problem+json", {"examples": ()})["examples"]
    }


def test_what_this_process_may_answer_is_told():
    # The bases of others; what stands in the orchestrator; what has no operation; what is for operators.
    elsewhere = {Unavailable, RejectedByModel, UnknownPath, WrongMethod, ModelChange, AnswerTooLarge}
    raised = {(error.status, error.slug) for error in kinds(ServiceError) if error not in elsewhere}
    assert all(raised <= told_of(path) for path in WORK)


def test_what_the_orchestrator_may_answer_is_told():
    sources = [file.read_text() for file in (ROOT / "model_repository" / "mobile_sam" / "1").glob("*.py")]
    found = {(int(status), slug, title) for text in sources for status, slug, title in IN_ORCHESTRATOR.findall(text)}
    raised = {(status, slug) for status, slug, _ in found}
    assert {(problem.status, problem.slug, problem.title) for problem in (*REJECTIONS, *TOO_MUCH)} <= found
    assert raised <= told_of("/mobile_sam")
    too_much = {(422, "answer-too-large"), (422, "too-much-work")}
    assert raised - told_of("/embed") == too_much
    assert raised - told_of("/everything") == {(422, "too-much-work")}


def test_operators_are_told_why_models_were_not_changed():
    asked = {(401, "unauthorized"), (503, "inference-unavailable")}
    assert told_of("/admin/models") == asked
    for path in ("/admin/models/load", "/admin/models/{model}/load", "/admin/models/{model}/unload"):
        assert told_of(path) == {*asked, (409, "model-change")}


def test_operators_paths_are_told_where_there_are_operators():
    assert not [path for path in document(need_key=True)["paths"] if path.startswith("/admin")]


def test_probes_say_what_they_answer():
    assert told_of("/livez") == told_of("/info") == set()
    assert told_of("/metrics") == {(401, "unauthorized")}
    assert told_of("/readyz") == {(503, "inference-unavailable"), (503, "stopping")}


@pytest.mark.parametrize("path", PATHS)
def test_errors_are_declared_as_problems(path):
    ((_, operation),) = PATHS[path].items()
    statuses = {str(status) for status, _ in told_of(path)}
    assert set(operation["responses"]) == {"200"} | statuses
    for status in statuses:
        ((media, content),) = operation["responses"][status]["content"].items()
        assert media == "application/problem+json"
        assert content["schema"] == {"$ref": "#/components/schemas/Problem"}


def test_an_answer_lists_its_problems_with_an_example_of_each():
    answers = problem_answers([TOLD["unsupported-media-type"], TOLD["invalid-image"], TOLD["unsupported-image-format"]])
    assert list(answers) == ["415", "422"]
    assert answers["415"]["description"] == (
        "`unsupported-media-type`: The content type is not supported; "
        "`unsupported-image-format`: The image format is not supported"
    )
    examples = answers["415"]["content"]["application/problem+json"]["examples"]
    assert {slug: example["value"]["type"] for slug, example in examples.items()} == {
        "unsupported-media-type": "urn:mobile-sam:unsupported-media-type",
        "unsupported-image-format": "urn:mobile-sam:unsupported-image-format",
    }


def test_headers_are_told_where_they_are():
    for methods in PATHS.values():
        ((_, operation),) = methods.items()
        for status, answer in operation["responses"].items():
            expected = {"X-Request-ID"}
            if int(status) in RETRY_STATUSES:
                expected |= TooManyRequests("").headers().keys()
            if status == "401":
                expected |= Unauthorized("").headers().keys()
            assert set(answer["headers"]) == expected
    assert {Unavailable.status, TooManyRequests.status} == set(RETRY_STATUSES)
    assert Unavailable("").headers().keys() == TooManyRequests("").headers().keys()


def refuse_wrong_fields() -> None:
    parse_body(json.dumps({"pos_coords": [[1, 2, 3]], "labels": [5]}).encode(), SegmentRequest)


def refuse_one_too_many() -> None:
    admission = Admission(32, max_body_bytes=1)
    for caller in range(32):
        admission.count_requests(str(caller), 1)
    admission.check()


def refuse_to_stop() -> None:
    admission = Admission(32, max_body_bytes=1)
    admission.stop()
    admission.check()


def refuse_without_key() -> None:
    keys = ApiKeys.of("a:0123456789abcdef0123456789abcdef", None)
    assert keys is not None
    keys.name_of([])


def refuse_a_large_image() -> None:
    images.open_image(SIGNATURE + header((5000, 6000)) + chunk(b"IDAT", b""), 25_000_000)


def refuse_a_large_body() -> None:
    raise BodyTooLarge.of(Settings().max_body_bytes, 41_943_040)


@pytest.mark.parametrize(
    ("slug", "refuse"),
    [
        ("malformed-body", lambda: parse_body(b"hello", SegmentRequest)),
        ("invalid-request", refuse_wrong_fields),
        ("overloaded", refuse_one_too_many),
        ("stopping", refuse_to_stop),
        ("unauthorized", refuse_without_key),
        ("body-too-large", refuse_a_large_body),
        ("image-too-large", refuse_a_large_image),
        ("unsupported-image-format", lambda: images.open_image(b"GIF89a", 1)),
        ("invalid-image", lambda: images.open_image(b"this is not an image"[:19], 1)),
        ("answer-too-large", lambda: Wish(256, 256, "json", "overlay").check((683, 1024), 160 * 2**20)),
        ("too-much-work", lambda: Wish(256, 256, "polygon", "overlay").check((3000, 4000), 160 * 2**20)),
    ],
)
def test_an_example_is_in_the_words_of_the_service(slug, refuse):
    with pytest.raises((ServiceError, Rejected)) as raised:
        refuse()
    assert said(raised.value) == TOLD[slug].as_json()


def said(error: Any) -> dict[str, Any]:
    """The document that a caller gets of an error."""
    if isinstance(error, ServiceError):
        return error.problem().as_json()
    detail = "; ".join("{field}: expected {expected}, got {got}".format(**each) for each in error.errors)
    document = {"type": f"urn:mobile-sam:{error.slug}", "title": error.title, "status": error.status}
    return {**document, "detail": detail, "errors": error.errors}
