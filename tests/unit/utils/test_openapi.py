"""The OpenAPI document and the page around it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from utils.images import image_source
from utils.openapi import PAGE, VERSION, document, pages
from utils.prompts import to_prompts
from utils.schemas import EmbedRequest, EverythingRequest, ImageFields, SegmentRequest, parse_body

OPERATIONS: dict[str, type[ImageFields]] = {
    "/mobile_sam": SegmentRequest,
    "/embed": EmbedRequest,
    "/everything": EverythingRequest,
}
each_operation = pytest.mark.parametrize(("path", "model"), OPERATIONS.items(), ids=OPERATIONS)


def operation(path: str) -> dict[str, Any]:
    found: dict[str, Any] = document()["paths"][path]["post"]
    return found


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
    whole = document()
    references = {entry["$ref"] for entry in objects(whole) if "$ref" in entry}
    assert "#/components/schemas/ObjectFields" in references
    for reference in references:
        place: Any = whole
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
        assert place["type"] == "object"


def test_every_schema_is_led_to():
    whole = document()
    references = {entry["$ref"].rpartition("/")[2] for entry in objects(whole) if "$ref" in entry}
    assert references == set(whole["components"]["schemas"])


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
    assert set(responses) == {"200", "400", "404", "413", "415", "422", "500", "503", "504"}
    for status, response in responses.items():
        if status != "200":
            assert list(response["content"]) == ["application/problem+json"]
            assert response["description"]


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
    assert f'version = "{VERSION}"' in (Path(__file__).resolve().parents[3] / "pyproject.toml").read_text()
