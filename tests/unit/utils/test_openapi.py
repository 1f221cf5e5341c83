"""The OpenAPI document and the page around it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from utils.errors import (
    RejectedByModel,
    ServiceError,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    UnknownPath,
    WrongMethod,
)
from utils.images import image_source
from utils.openapi import PAGE, RETRY_STATUSES, VERSION, document, pages
from utils.prompts import to_prompts
from utils.schemas import EmbedRequest, EverythingRequest, ImageFields, SegmentRequest, parse_body

ROOT = Path(__file__).resolve().parents[3]
KEYED = document(need_key=True, metrics_need_key=True)
ERRORS = {"400", "404", "408", "413", "415", "422", "429", "500", "503", "504"}
OPERATIONS: dict[str, type[ImageFields]] = {
    "/mobile_sam": SegmentRequest,
    "/embed": EmbedRequest,
    "/everything": EverythingRequest,
}
each_operation = pytest.mark.parametrize(("path", "model"), OPERATIONS.items(), ids=OPERATIONS)


def operation(path: str) -> dict[str, Any]:
    found: dict[str, Any] = document()["paths"][path]["post"]
    return found


def all_operations(whole: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for methods in whole["paths"].values() for operation in methods.values()]


def problems(answered: dict[str, Any]) -> set[tuple[int, str]]:
    """Status and slug of each problem that an operation tells of."""
    return {
        (int(status), slug)
        for status, answer in answered["responses"].items()
        for slug in re.findall(r"`([a-z-]+)`: ", answer["description"])
    }


def objects(value: Any) -> list[dict[str, Any]]:
    """All objects in a JSON document."""
    if isinstance(value, dict):
        return [value, *(inner for member in value.values() for inner in objects(member))]
    if isinstance(value, list):
        return [inner for member in value for inner in objects(member)]
    return []


def test_what_is_posted_is_described():
    posts = {path: methods["post"]["operationId"] for path, methods in document()["paths"].items() if "post" in methods}
    assert posts == {"/mobile_sam": "mobile_sam", "/embed": "embed", "/everything": "everything"}


def test_every_reference_leads_somewhere():
    references = {entry["$ref"] for entry in objects(KEYED) if "$ref" in entry}
    assert "#/components/schemas/ObjectFields" in references
    for reference in references:
        place: Any = KEYED
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
        assert place["type" if "/schemas/" in reference else "schema"]


def test_every_component_is_led_to():
    references = {entry["$ref"] for entry in objects(KEYED) if "$ref" in entry}
    parts = KEYED["components"].items()
    assert references == {
        f"#/components/{kind}/{name}" for kind, part in parts for name in part if kind != "securitySchemes"
    }


def test_what_is_required_is_described():
    required = [entry for entry in objects(document()) if isinstance(entry.get("required"), list)]
    assert required
    for entry in required:
        assert set(entry["required"]) <= set(entry["properties"])


@each_operation
def test_the_example_is_a_valid_request(path, model):
    content = operation(path)["requestBody"]["content"]["application/json"]
    assert content["schema"] == {"$ref": f"#/components/schemas/{model.__name__}"}
    request = parse_body(json.dumps(content["example"]).encode(), model)
    file = image_source(request).file
    assert file is not None
    assert file.startswith(b"\x89PNG")
    if isinstance(request, SegmentRequest):
        assert to_prompts(request).labels.tolist() == [[1]]


@each_operation
def test_the_schema_of_a_request_is_that_of_its_model(path, model):
    properties = document()["components"]["schemas"][model.__name__]["properties"]
    assert set(properties) == set(model.model_fields)


@each_operation
def test_errors_are_declared_as_problems(path, model):
    responses = operation(path)["responses"]
    assert set(responses) == {"200", *ERRORS}
    for status, response in responses.items():
        if status != "200":
            assert list(response["content"]) == ["application/problem+json"]
            assert response["description"]


def test_what_this_process_may_answer_is_told():
    def kinds(error: type[ServiceError]) -> list[type[ServiceError]]:
        return [error, *(inner for kind in error.__subclasses__() for inner in kinds(kind))]

    # The bases of others; what stands in the orchestrator; what has no operation.
    elsewhere = {Unavailable, RejectedByModel, UnknownPath, WrongMethod}
    raised = {(error.status, error.slug) for error in kinds(ServiceError) if error not in elsewhere}
    told = [problems(KEYED["paths"][path]["post"]) for path in OPERATIONS]
    assert all(raised <= each for each in told)


def test_what_the_orchestrator_may_answer_is_told():
    sources = [file.read_text() for file in (ROOT / "model_repository" / "mobile_sam" / "1").glob("*.py")]
    raised = {
        (int(status), slug) for text in sources for status, slug in re.findall(r'\(\s*(4\d\d),\s*"([a-z-]+)",', text)
    }
    assert (404, "image-not-cached") in raised
    assert raised <= problems(operation("/mobile_sam"))
    for path in ("/embed", "/everything"):
        assert raised - problems(operation(path)) == {(422, "answer-too-large")}


def test_headers_are_told_where_they_are():
    for answered in all_operations(KEYED):
        for status, response in answered["responses"].items():
            expected = {"X-Request-ID"}
            if int(status) in RETRY_STATUSES:
                expected |= TooManyRequests("").headers().keys()
            if status == "401":
                expected |= Unauthorized("").headers().keys()
            assert set(response["headers"]) == expected
    assert {Unavailable.status, TooManyRequests.status} == set(RETRY_STATUSES)
    assert Unavailable("").headers().keys() == TooManyRequests("").headers().keys()


def test_a_request_may_bring_its_id():
    assert document()["components"]["parameters"]["RequestId"]["name"] == "X-Request-ID"
    for answered in all_operations(document()):
        assert answered["parameters"] == [{"$ref": "#/components/parameters/RequestId"}]


@pytest.mark.parametrize("metrics", [False, True], ids=["open metrics", "metrics by key"])
@pytest.mark.parametrize("keys", [False, True], ids=["no keys", "keys"])
def test_a_key_is_asked_for_where_it_is_needed(keys, metrics):
    whole = document(need_key=keys, metrics_need_key=metrics)
    schemes = whole["components"]["securitySchemes"]
    for path, methods in whole["paths"].items():
        ((method, answered),) = methods.items()
        needed = keys if method == "post" else path == "/metrics" and metrics
        assert ("401" in answered["responses"]) == needed
        assert answered.get("security", []) == ([{"bearer": []}, {"apiKey": []}] if needed else [])
    assert {name: scheme["type"] for name, scheme in schemes.items()} == {"bearer": "http", "apiKey": "apiKey"}


def test_probes_say_what_they_answer():
    paths = document()["paths"]
    assert set(paths["/livez"]["get"]["responses"]) == set(paths["/metrics"]["get"]["responses"]) == {"200"}
    assert set(paths["/readyz"]["get"]["responses"]) == {"200", "503"}
    assert problems(paths["/readyz"]["get"]) == {(503, "inference-unavailable"), (503, "stopping")}


def test_the_page_is_of_the_service_as_it_is_set_up(tmp_path):
    answered = json.loads(bytes(pages(tmp_path, need_key=True)["/docs.json"].body))
    assert answered == document(need_key=True)


@pytest.mark.parametrize(
    ("path", "content_types"),
    [
        ("/mobile_sam", ["multipart/form-data"]),
        ("/embed", ["application/json"]),
        ("/everything", ["application/json", "application/x-ndjson"]),
    ],
)
def test_answers_are_described(path, content_types):
    assert list(operation(path)["responses"]["200"]["content"]) == content_types


def test_the_page_names_the_weights_in_use(tmp_path):
    record = tmp_path / "mobile_sam" / "1" / "weights.json"
    record.parent.mkdir(parents=True)
    record.write_text('{"name": "mine", "note": "Made at home."}')
    assert b"Weights in use: **mine**. Made at home." in pages(tmp_path)["/docs.json"].body


@pytest.mark.parametrize("content", [None, "", "[]", '{"name": 1}'])
def test_weights_that_are_not_described_are_not_named(tmp_path, content):
    if content is not None:
        (tmp_path / "mobile_sam" / "1").mkdir(parents=True)
        (tmp_path / "mobile_sam" / "1" / "weights.json").write_text(content)
    assert b"Weights in use" not in pages(tmp_path)["/docs.json"].body


def test_the_page_asks_no_other_host():
    assert "://" not in PAGE


def test_the_version_is_the_packages():
    assert f'version = "{VERSION}"' in (ROOT / "pyproject.toml").read_text()
