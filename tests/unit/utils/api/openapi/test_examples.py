"""Examples: valid requests, and responses that fit their schemas."""

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco

from utils.api.info import LOADED_METRIC, Info, describe
from utils.api.inputs import image_source, to_prompts
from utils.api.openapi import EXAMPLE, EXAMPLE_IMAGE, document
from utils.api.openapi.examples import FILE, IMAGE_ID, INFO, LINES, RESULT, RUN_LENGTHS
from utils.api.received import parse_body
from utils.api.requests import EmbedRequest, EverythingRequest, ImageFields, SegmentRequest
from utils.settings import Settings

ROOT = Path(__file__).resolve().parents[5]
WHOLE = document(need_key=True)
SCHEMAS: dict[str, Any] = WHOLE["components"]["schemas"]
OPERATIONS = {
    operation["operationId"]: operation for methods in WHOLE["paths"].values() for operation in methods.values()
}
MODELS: dict[str, type[ImageFields]] = {
    "mobile_sam": SegmentRequest,
    "embed": EmbedRequest,
    "everything": EverythingRequest,
}
DISC = (214, 92, 60)
"""Colour of the disc in the example image."""
KINDS = {"string": str, "boolean": bool, "integer": int, "array": list, "object": dict, "null": type(None)}

REQUESTS = [
    pytest.param(name, example["value"], id=f"{name}: {key}")
    for name in MODELS
    for key, example in OPERATIONS[name]["requestBody"]["content"]["application/json"]["examples"].items()
]
JSON_ANSWERS = [
    pytest.param(content["schema"], example["value"], id=f"{name} {status}: {key}")
    for name, operation in OPERATIONS.items()
    for status, answer in operation["responses"].items()
    for media, content in answer["content"].items()
    if media.endswith("json") and "ndjson" not in media
    for key, example in content["examples"].items()
]


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """Return whether a value matches a schema; objects must not have unknown fields."""
    if "$ref" in schema:
        return fits(value, SCHEMAS[schema["$ref"].rpartition("/")[2]])
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return any(fits(value, choice) for choice in choices)
    if schema["type"] == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if not isinstance(value, KINDS[schema["type"]]):
        return False
    if isinstance(value, list):
        maximum = schema.get("maxItems", len(value))
        return schema.get("minItems", 0) <= len(value) <= maximum and all(fits(item, schema["items"]) for item in value)
    if isinstance(value, dict):
        fields = schema["properties"]
        return set(schema["required"]) <= set(value) <= set(fields) and all(
            fits(member, fields[name]) for name, member in value.items()
        )
    return True


@pytest.mark.parametrize(("name", "value"), REQUESTS)
def test_example_request_is_valid(name, value):
    request = parse_body(json.dumps(value).encode(), MODELS[name])
    source = image_source(request)
    assert (source.file, source.image_id) in {(FILE, None), (None, IMAGE_ID)}
    if isinstance(request, SegmentRequest):
        points = to_prompts(request).points_xy
        assert ((points >= 0) & (points <= [80, 60])).all()


@pytest.mark.parametrize(("schema", "value"), JSON_ANSWERS)
def test_example_response_fits_its_schema(schema, value):
    assert fits(value, schema)


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_every_response_has_an_example(operation):
    for answer in operation["responses"].values():
        assert all(content["examples"] for content in answer["content"].values())


def test_first_example_clicks_on_the_disc():
    first = next(iter(OPERATIONS["mobile_sam"]["requestBody"]["content"]["application/json"]["examples"].values()))
    assert first["value"] == EXAMPLE
    ((x, y),) = EXAMPLE["pos_coords"]
    assert scene()[y, x].tolist() == list(DISC)
    assert EXAMPLE["input_image"] == EXAMPLE_IMAGE["input_image"]


def test_example_mask_is_the_disc():
    mask = coco.decode(RUN_LENGTHS).astype(bool)
    disc = (scene() == DISC).all(axis=2)
    assert (mask & disc).sum() > 0.95 * (mask | disc).sum()
    (properties,) = RESULT["masks"]
    rows, columns = np.nonzero(mask)
    assert properties["area"] == mask.sum()
    assert properties["box"] == [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]


def test_example_stream_is_progress_followed_by_the_result():
    lines = [json.loads(line) for line in LINES.splitlines()]
    schema = OPERATIONS["everything"]["responses"]["200"]["content"]["application/x-ndjson"]["schema"]
    assert fits(lines, schema)
    assert ["result" in line for line in lines] == [False] * (len(lines) - 1) + [True]
    problem = {"problem": {"type": "urn:mobile-sam:stopping", "title": "", "status": 503, "detail": ""}}
    assert fits([problem], schema)
    assert not fits([{"done": 1}], schema)


def test_info_of_the_service_fits_its_schema():
    labels = {"model": "mobile_sam", "version": "1", **INFO["weights"], "trained": "true", **INFO["engine"]}
    series = ",".join(f'{name}="{value}"' for name, value in labels.items())

    async def versions() -> list[int]:
        return [1]

    async def metrics() -> bytes:
        return f"{LOADED_METRIC}{{{series}}} 1.7e9\n".encode()

    described = describe(ROOT / "model_repository", Settings(), key_needed=False)
    document = asyncio.run(Info(described, versions, metrics, lambda: "2.51.0").document())
    assert document == INFO
    for each in (document, {**document, "weights": None, "engine": None, "triton": None}):
        assert fits(each, SCHEMAS["Info"])


def scene() -> np.ndarray:
    """Return the example image, (60, 80, 3) uint8 RGB."""
    return np.asarray(Image.open(io.BytesIO(FILE)).convert("RGB"))
