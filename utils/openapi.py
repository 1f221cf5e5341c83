"""The OpenAPI document and the Swagger page, in place of BentoML's.

BentoML's document names error answers this service does not give, and its page loads a script from another host.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import orjson
from starlette.responses import HTMLResponse, Response

from utils.errors import (
    MEDIA_TYPE,
    BodyTooLarge,
    InferenceFailed,
    InferenceTimeout,
    InferenceUnavailable,
    InvalidRequest,
    MalformedBody,
    ServiceError,
    UnsupportedMedia,
)
from utils.prompts import SegmentRequest

VERSION = "0.1.0"
REFERENCES = "#/components/schemas/{model}"

EXAMPLE: dict[str, Any] = {
    "input_image": base64.b64encode((Path(__file__).parent / "example.png").read_bytes()).decode(),
    "pos_coords": [[80, 60]],
    "mask_format": "json",
    "segmented_image": "overlay",
}
"""A request that answers 200: a small drawn scene and a click on its disc."""

DESCRIPTION = """
Send an image and a few prompts (clicks, a box), get a mask and a picture: MobileSAM, served by NVIDIA Triton.

Every answer is `multipart/form-data` with the parts `mask`, `segmented_image` and `result`; every error is
`application/problem+json`, and `errors` in it names each offending field, what was expected and what came.
"""

PROBLEM_SCHEMA: dict[str, Any] = {
    "title": "Problem",
    "description": "RFC 9457 problem document",
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri", "examples": ["urn:mobile-sam:invalid-request"]},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["field", "expected", "got"],
                "properties": {name: {"type": "string"} for name in ("field", "expected", "got")},
            },
        },
    },
}

RESULT_SCHEMA: dict[str, Any] = {
    "title": "Result",
    "type": "object",
    "required": ["image_id", "width", "height", "weights", "masks"],
    "properties": {
        "image_id": {"type": "string", "description": "SHA-256 of the image file, in hexadecimal"},
        "width": {"type": "integer", "description": "of the displayed image, in pixels"},
        "height": {"type": "integer", "description": "of the displayed image, in pixels"},
        "weights": {
            "type": "object",
            "description": "where the model's weights come from",
            "required": ["name", "sha256", "trained", "note"],
            "properties": {
                "name": {"type": "string"},
                "sha256": {"type": "string"},
                "trained": {"type": "boolean"},
                "note": {"type": "string"},
            },
        },
        "masks": {
            "type": "array",
            "description": "one per mask, in the order of the `mask` part",
            "items": {
                "type": "object",
                "required": ["score", "area", "box"],
                "properties": {
                    "score": {"type": "number", "description": "the model's own estimate of the mask's IoU"},
                    "area": {"type": "integer", "description": "pixels of the mask"},
                    "box": {
                        "type": "array",
                        "description": "[x0, y0, x1, y1] around the mask; x1 and y1 lie one pixel outside of it",
                        "items": {"type": "integer"},
                        "minItems": 4,
                        "maxItems": 4,
                    },
                },
            },
        },
    },
}

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>MobileSAM on Triton</title>
<link rel="stylesheet" href="./static_content/swagger-ui.css">
<link rel="icon" type="image/png" href="./static_content/favicon-light-32x32.png">
<style>body { margin: 0; background: #fafafa } .swagger-ui .topbar { display: none }</style>
</head>
<body>
<div id="swagger-ui"></div>
<script src="./static_content/swagger-ui-bundle.js" charset="utf-8"></script>
<script src="./static_content/swagger-ui-standalone-preset.js" charset="utf-8"></script>
<script src="./static_content/swagger-initializer.js" charset="utf-8"></script>
</body>
</html>
"""


def pages(repository: Path) -> dict[str, Response]:
    """The answers of `/` and `/docs.json`.

    Args:
        repository: the model repository; where its weights are described there, the page names them.
    """
    text = orjson.dumps(document(weights_line(repository)))
    return {"/": HTMLResponse(PAGE), "/docs.json": Response(text, media_type="application/json")}


def weights_line(repository: Path) -> str:
    """A sentence or two on the weights in a model repository; empty where it does not say."""
    try:
        weights = orjson.loads((repository / "mobile_sam" / "1" / "weights.json").read_bytes())
        return f"Weights in use: **{weights['name']}**. {weights['note']}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def document(weights: str = "") -> dict[str, Any]:
    """The OpenAPI 3.1 document of the service.

    Args:
        weights: a line on the weights in use, for the description.
    """
    request_schema = SegmentRequest.model_json_schema(ref_template=REFERENCES)
    definitions = request_schema.pop("$defs", {})
    return {
        "openapi": "3.1.0",
        "info": {"title": "MobileSAM on Triton", "version": VERSION, "description": f"{DESCRIPTION}\n{weights}\n"},
        "servers": [{"url": "."}],
        "tags": [{"name": "Segmentation"}, {"name": "Operation"}],
        "paths": {
            "/mobile_sam": {"post": _segment()},
            "/livez": {"get": _probe("The process is alive.")},
            "/readyz": {"get": _probe("The service takes requests.", 503)},
            "/metrics": {"get": _probe("Prometheus metrics.")},
        },
        "components": {
            "schemas": {
                "SegmentRequest": request_schema,
                "Result": RESULT_SCHEMA,
                "Problem": PROBLEM_SCHEMA,
                **definitions,
            }
        },
    }


def _segment() -> dict[str, Any]:
    """The operation `POST /mobile_sam`."""
    errors: tuple[type[ServiceError], ...] = (
        MalformedBody,
        BodyTooLarge,
        UnsupportedMedia,
        InvalidRequest,
        InferenceFailed,
        InferenceUnavailable,
        InferenceTimeout,
    )
    content = {
        "schema": {
            "type": "object",
            "required": ["mask", "result"],
            "properties": {
                "mask": {"type": "string", "format": "binary", "description": "encoded as `mask_format` says"},
                "segmented_image": {"type": "string", "format": "binary", "description": "PNG; absent for `none`"},
                "result": {"$ref": REFERENCES.format(model="Result")},
            },
        }
    }
    return {
        "tags": ["Segmentation"],
        "operationId": "mobile_sam",
        "summary": "Find one object on an image",
        "description": "Clicks or a box in, a mask and a picture out.",
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {"$ref": REFERENCES.format(model="SegmentRequest")},
                    "example": EXAMPLE,
                }
            },
        },
        "responses": {
            "200": {
                "description": "the parts `mask`, `segmented_image` (left out for `none`) and `result`, in this order",
                "content": {"multipart/form-data": content},
            },
            **{str(error.status): _problem_answer(error.title) for error in errors},
        },
    }


def _probe(description: str, *problems: int) -> dict[str, Any]:
    return {
        "tags": ["Operation"],
        "summary": description,
        "responses": {
            "200": {"description": "yes", "content": {"text/plain": {"schema": {"type": "string"}}}},
            **{str(status): _problem_answer("no") for status in problems},
        },
    }


def _problem_answer(description: str) -> dict[str, Any]:
    schema = {"$ref": REFERENCES.format(model="Problem")}
    return {"description": description, "content": {MEDIA_TYPE: {"schema": schema}}}
