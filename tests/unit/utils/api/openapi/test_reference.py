"""The reference in `docs/http.md`, and its texts for schemas."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from utils.api.openapi import document
from utils.api.openapi.problems import IMAGE_PROBLEMS, MASK_PROBLEMS, SERVICE_PROBLEMS, UNAUTHORIZED
from utils.api.openapi.reference import default_of, limits_of, reference, type_of

ROOT = Path(__file__).resolve().parents[5]
PAGE = reference()
WHOLE = document(need_key=True)
NULL = {"type": "null"}
POINT = {"type": "array", "prefixItems": [{"type": "number"}] * 2, "minItems": 2, "maxItems": 2}


def test_page_is_up_to_date():
    assert (ROOT / "docs" / "http.md").read_text() == PAGE, "run `make docs`"


def test_page_has_every_operation_and_field():
    for path, methods in WHOLE["paths"].items():
        for method, operation in methods.items():
            name = f"{method.upper()} {path}"
            assert f"\n## {name}\n\n{operation['summary']}. " in PAGE or f"\n- `{name}`: " in PAGE
            assert "requestBody" not in operation or f"\n## {name}\n" in PAGE
    assert "<<" not in PAGE
    for schema in WHOLE["components"]["schemas"].values():
        for name in schema["properties"]:
            assert re.search(rf"^- `{name}`", PAGE, re.MULTILINE), name


def test_page_has_every_problem():
    table = dict(re.findall(r"^- (\d+): (.+)$", PAGE, re.MULTILINE))
    for problem in (*UNAUTHORIZED, *SERVICE_PROBLEMS, *IMAGE_PROBLEMS):
        assert f"`{problem.slug}`\\*" in table[str(problem.status)].split(", ")
    for problem in MASK_PROBLEMS:
        assert f"`{problem.slug}`" in table[str(problem.status)].split(", ")


def test_fields_of_a_base_are_not_repeated():
    assert "- `input_image`, `image_id`, `model_version` of [POST /mobile_sam](#post-mobile_sam)\n" in PAGE
    assert PAGE.count("\n- `input_image`: ") == 1
    assert PAGE.count("\n- `engine`: ") == 2  # of an image and of `/info`


def test_problems_of_an_operation_are_listed():
    for path, methods in document(need_key=True, metrics_need_key=True, admin=True)["paths"].items():
        for method, operation in methods.items():
            name = f"{method.upper()} {path}"
            section = PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
            errors = [error for status, error in operation["responses"].items() if status != "200"]
            slugs = {slug for error in errors for slug in error["content"]["application/problem+json"]["examples"]}
            line = "".join(line for line in section.splitlines() if line.startswith("[Problems]"))
            line = line or PAGE.partition(f"\n- `{name}`: ")[2].partition("\n")[0].partition("; problems ")[2]
            marked = set(re.findall(r"`([a-z-]+)`\\\*", PAGE)) if "marked" in line else set()
            assert marked | set(re.findall(r"`([a-z-]+)`", line)) == slugs, path


@pytest.mark.parametrize(
    ("describe", "schema", "text"),
    [
        (type_of, {"type": "string"}, "string"),
        (type_of, {"type": "string", "enum": ["a", "b"]}, "`a`, `b`"),
        (type_of, {"$ref": "#/components/schemas/Mask"}, "[Mask](#mask)"),
        (type_of, {"type": "array", "items": {"$ref": "#/components/schemas/Mask"}}, "list of [Mask](#mask)"),
        (type_of, {"type": "array", "items": {"type": "integer"}}, "list of integers"),
        (type_of, {"type": "array", "items": {"type": "integer"}, "minItems": 4, "maxItems": 4}, "list of 4 integers"),
        (type_of, POINT, "pair of numbers"),
        (type_of, {"type": "array", "items": POINT}, "list of pairs of numbers"),
        (type_of, {"anyOf": [{"type": "string"}, NULL], "default": None}, "string"),
        (type_of, {"anyOf": [{"$ref": "#/components/schemas/Weights"}, NULL]}, "[Weights](#weights) or null"),
        (type_of, {"type": ["integer", "null"]}, "integer or null"),
        (limits_of, {"type": "string"}, ""),
        (limits_of, {"type": "string", "maxLength": 128}, "up to 128 characters"),
        (limits_of, {"type": "integer", "minimum": 1, "maximum": 1_000_000}, "1 to 1,000,000"),
        (limits_of, {"type": "number", "exclusiveMinimum": 0, "maximum": 20}, "more than 0, up to 20"),
        (limits_of, {"anyOf": [{"type": "array", "minItems": 1, "maxItems": 256}, NULL]}, "1 to 256 items"),
        (limits_of, {"anyOf": [{"type": "array", "maxItems": 256}, NULL]}, "up to 256 items"),
        (limits_of, POINT, ""),
        (default_of, {}, ""),
        (default_of, {"default": None}, ""),
        (default_of, {"default": "json"}, '`"json"`'),
        (default_of, {"default": False}, "`false`"),
        (default_of, {"default": 512 / 1500}, "`0.3413`"),
    ],
)
def test_type_limits_and_default_of_a_schema_are_described(describe, schema, text):
    assert describe(schema) == text
