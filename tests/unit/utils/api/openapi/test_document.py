"""The OpenAPI document: complete, and consistent with the service."""

from typing import Any

import pytest

from utils.api.answers import MASK_PARTS
from utils.api.openapi import document

WHOLE, KEYED = document(), document(need_key=True, metrics_need_key=True)


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
        f"#/components/{kind}/{name}" for kind, part in parts for name in part if kind != "securitySchemes"
    }


@pytest.mark.parametrize("name", WHOLE["components"]["schemas"])
def test_every_field_has_a_description(name):
    schema = WHOLE["components"]["schemas"][name]
    assert schema["description"]
    for field in schema["properties"].values():
        assert field.get("description") or "$ref" in field
        assert "title" not in field


def test_every_operation_accepts_a_request_id():
    assert WHOLE["components"]["parameters"]["RequestId"]["name"] == "X-Request-ID"
    for methods in WHOLE["paths"].values():
        ((_, operation),) = methods.items()
        assert operation["parameters"] == [{"$ref": "#/components/parameters/RequestId"}]


@pytest.mark.parametrize("metrics", [False, True], ids=["public metrics", "protected metrics"])
@pytest.mark.parametrize("keys", [False, True], ids=["no keys", "keys"])
def test_security_is_declared_for_protected_operations(keys, metrics):
    whole = document(need_key=keys, metrics_need_key=metrics)
    for path, methods in whole["paths"].items():
        ((method, operation),) = methods.items()
        needed = keys if method == "post" else path == "/metrics" and metrics
        assert ("401" in operation["responses"]) == needed
        assert operation.get("security", []) == ([{"bearer": []}, {"apiKey": []}] if needed else [])
    schemes = {name: scheme["type"] for name, scheme in whole["components"].get("securitySchemes", {}).items()}
    assert schemes == ({"bearer": "http", "apiKey": "apiKey"} if keys or metrics else {})


def test_parts_have_their_content_types():
    content = WHOLE["paths"]["/mobile_sam"]["post"]["responses"]["200"]["content"]["multipart/form-data"]
    parts = WHOLE["components"]["schemas"]["Segmentation"]
    encoding = {name: each["contentType"].split(", ") for name, each in content["encoding"].items()}
    assert list(encoding) == list(parts["properties"]) == ["mask", "segmented_image", "result"]
    assert encoding["mask"] == sorted({kind for kind, _ in MASK_PARTS.values()})
    assert (encoding["segmented_image"], encoding["result"]) == (["image/png"], ["application/json"])
    for mask_format, (kind, _) in MASK_PARTS.items():
        # The description has the form: `type` for `format`, `format` and `format`, `type` for ...
        before = parts["properties"]["mask"]["description"].partition(f"`{mask_format}`")[0]
        assert kind == max(encoding["mask"], key=before.rfind)
