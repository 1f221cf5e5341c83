"""The OpenAPI document and its page: complete, and consistent with the service."""

import json
import re
from typing import Any

import pytest

from utils.api.answers import MASK_PARTS
from utils.api.openapi import document, pages
from utils.api.openapi.examples import INFO
from utils.api.responses import Info
from utils.integrations import ADAPTERS

WHOLE, KEYED = document(), document(need_key=True, metrics_need_key=True)
SCHEMAS = WHOLE["components"]["schemas"]


def objects(value: Any) -> list[dict[str, Any]]:
    """Return all objects in a JSON document."""
    if isinstance(value, dict):
        return [value, *(inner for member in value.values() for inner in objects(member))]
    if isinstance(value, list):
        return [inner for member in value for inner in objects(member)]
    return []


def test_components_are_those_that_are_referenced():
    references = {entry["$ref"] for entry in objects(KEYED) if "$ref" in entry}
    parts = KEYED["components"].items()
    assert references == {
        f"#/components/{kind}/{name}"
        for kind, part in parts
        for name in part
        if kind != "securitySchemes"
    }


def test_every_field_has_a_description_and_no_title():
    for name, schema in SCHEMAS.items():
        assert schema["description"], name
        for field in schema["properties"].values():
            assert field.get("description") or "$ref" in field, name
            assert "title" not in field


POINTS, FRACTION = {"maxItems": 256}, {"minimum": 0, "maximum": 1}
LIMITS = {
    "ObjectFields": {"pos_coords": POINTS, "neg_coords": POINTS, "labels": POINTS},
    "SegmentRequest": {
        "prompts": {"minItems": 1, "maxItems": 256},
        "image_id": {"maxLength": 128},
        "model_version": {"minimum": 1, "maximum": 2**31 - 1},
        "mask_threshold": {"minimum": -20, "maximum": 20},
        "min_mask_region_area": {"minimum": 0, "maximum": 10**9},
        "polygon_tolerance": {"minimum": 0, "maximum": 100},
    },
    "EverythingRequest": {
        "points_per_side": {"minimum": 1, "maximum": 64},
        "pred_iou_thresh": FRACTION,
        "stability_score_thresh": FRACTION,
        "stability_score_offset": {"exclusiveMinimum": 0, "maximum": 20},
        "box_nms_thresh": FRACTION,
        "crop_n_layers": {"minimum": 0, "maximum": 3},
        "crop_nms_thresh": FRACTION,
        "crop_overlap_ratio": FRACTION,
        "crop_n_points_downscale_factor": {"minimum": 1, "maximum": 16},
        "min_mask_region_area": {"minimum": 0, "maximum": 10**9},
    },
}


@pytest.mark.parametrize(
    ("schema", "field"), [(schema, field) for schema in LIMITS for field in LIMITS[schema]]
)
def test_limits_of_a_field_do_not_change_by_accident(schema, field):
    described = SCHEMAS[schema]["properties"][field]
    assert LIMITS[schema][field].items() <= described.get("anyOf", [described])[0].items()


KEYED_PATHS = {"/embed/{job}", "/embeddings/{image_id}", "/decoder.onnx"}


@pytest.mark.parametrize("metrics", [False, True], ids=["public metrics", "protected metrics"])
@pytest.mark.parametrize("keys", [False, True], ids=["no keys", "keys"])
def test_security_is_declared_for_protected_operations(keys, metrics):
    whole = document(need_key=keys, metrics_need_key=metrics)
    operations = [
        (path, method, each)
        for path, methods in whole["paths"].items()
        for method, each in methods.items()
    ]
    for path, method, operation in operations:
        needed = keys if method == "post" or path in KEYED_PATHS else path == "/metrics" and metrics
        assert ("401" in operation["responses"]) == needed
        assert operation.get("security", []) == ([{"bearer": []}, {"apiKey": []}] if needed else [])
    assert ("securitySchemes" in whole["components"]) == (keys or metrics)


def test_paths_of_local_decoding_are_absent_where_it_is_off():
    off = document(local_decoding=False)["paths"]
    assert WHOLE["paths"].keys() - off.keys() == {"/embeddings/{image_id}", "/decoder.onnx"}


def test_paths_of_annotation_tools_are_those_of_the_adapters_that_are_on():
    tools = [adapter for adapter in ADAPTERS if adapter.name in {"x-anylabeling", "label-studio"}]
    whole = document(need_key=True, tools=tools)
    added = whole["paths"].keys() - WHOLE["paths"].keys()
    assert added == {path for tool in tools for path in (*tool.pages, *tool.work)}
    keyed = {
        path
        for path in added
        for operation in whole["paths"][path].values()
        if operation.get("security")
    }
    assert keyed == added - {"/v1/models", "/v1/models/mobile_sam/info"}
    assert whole["tags"][-1]["name"] == "Annotation tools"
    ids = [each["operationId"] for methods in whole["paths"].values() for each in methods.values()]
    assert len(set(ids)) == len(ids)


def test_admin_paths_are_absent_without_admin_keys():
    assert not [path for path in KEYED["paths"] if path.startswith("/admin")]
    assert {"Model", "ModelList"}.isdisjoint(SCHEMAS)


def test_first_response_is_json_which_swagger_shows():
    for path in ("/mobile_sam", "/embed", "/everything"):
        content = WHOLE["paths"][path]["post"]["responses"]["200"]["content"]
        assert next(iter(content)) == "application/json"


def test_parts_have_their_content_types():
    content = WHOLE["paths"]["/mobile_sam"]["post"]["responses"]["200"]["content"][
        "multipart/form-data"
    ]
    encoding = {name: each["contentType"] for name, each in content["encoding"].items()}
    assert encoding["mask"].split(", ") == sorted({kind for kind, _ in MASK_PARTS.values()})
    assert (
        list(encoding)
        == list(SCHEMAS["Parts"]["properties"])
        == ["mask", "segmented_image", "result"]
    )


def test_pages_show_the_configured_service_and_link_to_the_ui():
    served = pages(Info.model_validate({**INFO, "key_needed": True}))
    assert json.loads(bytes(served["/docs.json"].body)) == json.loads(
        json.dumps(document(need_key=True), default=vars)
    )
    assert (served["/docs"], served["/openapi.json"]) == (served["/"], served["/docs.json"])
    header = bytes(served["/"].body).decode().partition("<noscript>")[0]
    assert re.findall(r'<a href="([^"]+)"', header) == ["ui", "docs.json"]
