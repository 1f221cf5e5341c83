"""The OpenAPI document and the Swagger page, in place of BentoML's.

BentoML's document names error answers this service does not give, and its page loads a script from another host.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel
from starlette.responses import HTMLResponse, Response

from utils.errors import (
    MEDIA_TYPE,
    BodyTooLarge,
    InferenceFailed,
    InferenceTimeout,
    InferenceUnavailable,
    InvalidRequest,
    MalformedBody,
    Overloaded,
    ServiceError,
    SlowBody,
    Stopping,
    TooManyRequests,
    Unauthorized,
    UnsupportedMedia,
)
from utils.schemas import EmbedRequest, EverythingRequest, SegmentRequest

VERSION = "0.1.0"
REFERENCES = "#/components/schemas/{model}"

Kind = tuple[int, str, str]
"""HTTP status, slug and title of a problem."""


def _kinds(*errors: type[ServiceError]) -> tuple[Kind, ...]:
    return tuple((error.status, error.slug, error.title) for error in errors)


NO_KEY = _kinds(Unauthorized)
NOT_READY = _kinds(InferenceUnavailable, Stopping)
REFUSALS: tuple[Kind, ...] = (
    *_kinds(MalformedBody, SlowBody, BodyTooLarge, UnsupportedMedia, InvalidRequest, TooManyRequests),
    *_kinds(ServiceError, InferenceFailed, InferenceUnavailable, Overloaded, Stopping, InferenceTimeout),
)
"""Of a request that costs work, by this process."""
REJECTIONS: tuple[Kind, ...] = (
    (404, "image-not-cached", "The image is not known (any more): send it again"),
    (413, "image-too-large", "The image has too many pixels"),
    (415, "unsupported-image-format", "The image format is not supported"),
    (422, "invalid-image", "The image cannot be read"),
)
"""Of what was sent, by the orchestrator in Triton."""
TOO_MUCH: tuple[Kind, ...] = ((422, "answer-too-large", "The answer would be too large"),)
"""Of the masks that were asked for, by the same."""

EXAMPLE_IMAGE: dict[str, Any] = {
    "input_image": base64.b64encode((Path(__file__).parent / "example.png").read_bytes()).decode(),
}
"""A small drawn scene."""

EXAMPLE: dict[str, Any] = {
    **EXAMPLE_IMAGE,
    "pos_coords": [[80, 60]],
    "mask_format": "json",
    "segmented_image": "overlay",
}
"""A request that answers 200: the scene and a click on its disc."""

DESCRIPTION = """
Send an image and a few prompts (clicks, a box), get a mask and a picture: MobileSAM, served by NVIDIA Triton.

An image is encoded once, with the first request that sends it or ahead of that by `/embed`; from then on prompts name
it by the `image_id` of any answer. Every error is `application/problem+json`: `type` in it is `urn:mobile-sam:` and one
of the names that each operation lists, and `errors` names each offending field, what was expected and what came.
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

WEIGHTS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "where the model's weights come from",
    "required": ["name", "sha256", "trained", "note"],
    "properties": {
        "name": {"type": "string"},
        "sha256": {"type": "string"},
        "trained": {"type": "boolean"},
        "note": {"type": "string"},
    },
}

ENGINE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "what ran the networks, and in which precision: `openvino bf16`, `onnxruntime f32`, ...",
    "required": ["encoder", "decoder"],
    "properties": {"encoder": {"type": "string"}, "decoder": {"type": "string"}},
}

IMAGE_SCHEMA: dict[str, Any] = {
    "title": "Image",
    "type": "object",
    "required": ["image_id", "width", "height", "weights", "engine"],
    "properties": {
        "image_id": {"type": "string", "description": "to name the image by in later requests"},
        "width": {"type": "integer", "description": "of the displayed image, in pixels"},
        "height": {"type": "integer", "description": "of the displayed image, in pixels"},
        "weights": WEIGHTS_SCHEMA,
        "engine": ENGINE_SCHEMA,
    },
}


RETRY_STATUSES = (429, 503)
HEADERS: dict[str, Any] = {
    "RequestId": {
        "description": "what the service's log calls the request: the id that it came with, or a new one",
        "required": True,
        "schema": {"type": "string"},
    },
    "RetryAfter": {
        "description": "seconds after which to try again",
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
    },
    "Authenticate": {
        "description": "how an API key is presented",
        "required": True,
        "schema": {"type": "string"},
    },
}

REQUEST_ID: dict[str, Any] = {
    "name": "X-Request-ID",
    "in": "header",
    "description": "an id of your own for the request: 1 to 128 of `A-Z a-z 0-9 . _ -`; any other is replaced",
    "schema": {"type": "string"},
}

SECURITY_SCHEMES: dict[str, Any] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "an API key, where the service wants one"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "the same in a header of its own"},
}
ANY_SCHEME: list[dict[str, list[str]]] = [{name: []} for name in SECURITY_SCHEMES]


def _with_masks(title: str, description: str, mask: dict[str, Any]) -> dict[str, Any]:
    """The schema of an image with a list of masks."""
    masks = {"type": "array", "description": description, "items": mask}
    return {
        **IMAGE_SCHEMA,
        "title": title,
        "required": [*IMAGE_SCHEMA["required"], "masks"],
        "properties": {**IMAGE_SCHEMA["properties"], "masks": masks},
    }


def _numbers(description: str, count: int, kind: str = "integer") -> dict[str, Any]:
    return {
        "type": "array",
        "description": description,
        "items": {"type": kind},
        "minItems": count,
        "maxItems": count,
    }


RESULT_SCHEMA = _with_masks(
    "Result",
    "one per mask, in the order of the `mask` part: objects as they stood in the request, candidates of one together",
    {
        "type": "object",
        "required": ["object", "score", "area", "box"],
        "properties": {
            "object": {"type": "integer", "description": "which of the request's objects the mask is of, from 0"},
            "score": {"type": "number", "description": "the model's own estimate of the mask's IoU"},
            "area": {"type": "integer", "description": "pixels of the mask"},
            "box": _numbers("[x0, y0, x1, y1] around the mask; x1 and y1 lie one pixel outside of it", 4),
            "low_res_mask": {
                "type": "string",
                "description": "where asked for: base64 of a NumPy file, (256, 256) float32 logits; for `mask_input`",
            },
        },
    },
)

EVERYTHING_SCHEMA = _with_masks(
    "Everything",
    "records as of Segment Anything's automatic mask generator",
    {
        "type": "object",
        "required": [
            "segmentation", "area", "bbox", "predicted_iou", "point_coords", "stability_score", "crop_box",
        ],
        "properties": {
            "segmentation": {
                "type": "object",
                "description": "COCO's compressed run lengths",
                "required": ["size", "counts"],
                "properties": {"size": _numbers("[H, W]", 2), "counts": {"type": "string"}},
            },
            "area": {"type": "integer", "description": "pixels of the mask"},
            "bbox": _numbers("[x, y, width, height] around the mask, in pixels", 4),
            "predicted_iou": {"type": "number", "description": "the model's own estimate of the mask's IoU"},
            "point_coords": {
                "type": "array",
                "description": "the click that found it",
                "items": _numbers("[x, y]", 2, "number"),
            },
            "stability_score": {"type": "number", "description": "IoU of the mask at a higher and a lower threshold"},
            "crop_box": _numbers("[x, y, width, height] of the crop it was found on", 4),
        },
    },
)  # fmt: skip

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


def pages(repository: Path, *, need_key: bool = False, metrics_need_key: bool = False) -> dict[str, Response]:
    """The answers of `/` and `/docs.json`.

    Args:
        repository: the model repository; where its weights are described there, the page names them.
        need_key: whether requests that cost work need an API key.
        metrics_need_key: whether `/metrics` does.
    """
    text = orjson.dumps(document(weights_line(repository), need_key=need_key, metrics_need_key=metrics_need_key))
    return {"/": HTMLResponse(PAGE), "/docs.json": Response(text, media_type="application/json")}


def weights_line(repository: Path) -> str:
    """A sentence or two on the weights in a model repository; empty where it does not say."""
    try:
        weights = orjson.loads((repository / "mobile_sam" / "1" / "weights.json").read_bytes())
        return f"Weights in use: **{weights['name']}**. {weights['note']}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def document(weights: str = "", *, need_key: bool = False, metrics_need_key: bool = False) -> dict[str, Any]:
    """The OpenAPI 3.1 document of the service.

    Args:
        weights: a line on the weights in use, for the description.
        need_key: whether requests that cost work need an API key.
        metrics_need_key: whether `/metrics` does.
    """
    schemas: dict[str, Any] = {
        "Image": IMAGE_SCHEMA,
        "Result": RESULT_SCHEMA,
        "Everything": EVERYTHING_SCHEMA,
        "Problem": PROBLEM_SCHEMA,
    }
    for model in (SegmentRequest, EmbedRequest, EverythingRequest):
        schema = model.model_json_schema(ref_template=REFERENCES)
        schemas |= schema.pop("$defs", {})
        schemas[model.__name__] = schema
    return {
        "openapi": "3.1.0",
        "info": {"title": "MobileSAM on Triton", "version": VERSION, "description": f"{DESCRIPTION}\n{weights}\n"},
        "servers": [{"url": "."}],
        "tags": [{"name": "Segmentation"}, {"name": "Operation"}],
        "paths": {
            "/mobile_sam": {"post": _guarded(_segment(), need_key)},
            "/embed": {"post": _guarded(_embed(), need_key)},
            "/everything": {"post": _guarded(_everything(), need_key)},
            "/livez": {"get": _reading("The process is alive.", "it is")},
            "/readyz": {"get": _reading("The service takes requests.", "it does", NOT_READY)},
            "/metrics": {"get": _guarded(_reading("Prometheus metrics.", "the metrics"), metrics_need_key)},
        },
        "components": {
            "schemas": schemas,
            "headers": HEADERS,
            "parameters": {"RequestId": REQUEST_ID},
            "securitySchemes": SECURITY_SCHEMES,
        },
    }


def _segment() -> dict[str, Any]:
    """The operation `POST /mobile_sam`."""
    parts = {
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
    return _operation(
        "mobile_sam",
        "Find objects on an image",
        "Clicks or boxes in, masks and a picture out.",
        request=(SegmentRequest, EXAMPLE),
        answer="the parts `mask`, `segmented_image` (left out for `none`) and `result`, in this order",
        content={"multipart/form-data": parts},
        problems=TOO_MUCH,
    )


def _embed() -> dict[str, Any]:
    """The operation `POST /embed`."""
    return _operation(
        "embed",
        "Encode an image ahead of the first prompt",
        "The heavy part of the first request on an image, done before it is asked: prompts by the `image_id` of this "
        "answer are quick.",
        request=(EmbedRequest, EXAMPLE_IMAGE),
        answer="the image's id and size",
        content={"application/json": {"schema": {"$ref": REFERENCES.format(model="Image")}}},
    )


def _everything() -> dict[str, Any]:
    """The operation `POST /everything`."""
    lines = {"schema": {"type": "string", "description": "one JSON document a line, where `progress` is true"}}
    return _operation(
        "everything",
        "Find everything on an image",
        "A grid of clicks; masks that are neither certain nor stable enough, and repeated ones, are left out.",
        request=(EverythingRequest, {**EXAMPLE_IMAGE, "points_per_side": 8}),
        answer="Segment Anything's automatic-mask records",
        content={
            "application/json": {"schema": {"$ref": REFERENCES.format(model="Everything")}},
            "application/x-ndjson": lines,
        },
    )


def _operation(
    name: str,
    summary: str,
    description: str,
    *,
    request: tuple[type[BaseModel], dict[str, Any]],
    answer: str,
    content: dict[str, Any],
    problems: Iterable[Kind] = (),
) -> dict[str, Any]:
    """A POST of JSON.

    Args:
        name: of the operation.
        summary: what it does.
        description: more on that.
        request: its model and an example.
        answer: what the 200 is.
        content: of the 200, by type.
        problems: beside those that all operations have.
    """
    model, example = request
    schema = {"$ref": REFERENCES.format(model=model.__name__)}
    return {
        "tags": ["Segmentation"],
        "operationId": name,
        "summary": summary,
        "description": description,
        "parameters": [{"$ref": "#/components/parameters/RequestId"}],
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema, "example": example}}},
        "responses": {
            "200": _answer(200, answer, content),
            **_problem_answers([*REFUSALS, *REJECTIONS, *problems]),
        },
    }


def _reading(summary: str, answer: str, problems: Iterable[Kind] = ()) -> dict[str, Any]:
    """A GET of text: `answer` tells of the 200, `problems` are of other answers."""
    return {
        "tags": ["Operation"],
        "summary": summary,
        "parameters": [{"$ref": "#/components/parameters/RequestId"}],
        "responses": {
            "200": _answer(200, answer, {"text/plain": {"schema": {"type": "string"}}}),
            **_problem_answers(problems),
        },
    }


def _guarded(operation: dict[str, Any], need_key: bool) -> dict[str, Any]:
    """The operation, for holders of an API key alone where one is needed."""
    if not need_key:
        return operation
    responses = {**operation["responses"], **_problem_answers(NO_KEY)}
    return {**operation, "security": ANY_SCHEME, "responses": dict(sorted(responses.items()))}


def _problem_answers(kinds: Iterable[Kind]) -> dict[str, Any]:
    """An answer for each status, whose description lists the problems that have it."""
    problems: dict[int, list[str]] = {}
    for status, slug, title in kinds:
        problems.setdefault(status, []).append(f"`{slug}`: {title}")
    content = {MEDIA_TYPE: {"schema": {"$ref": REFERENCES.format(model="Problem")}}}
    return {str(status): _answer(status, "; ".join(titles), content) for status, titles in sorted(problems.items())}


def _answer(status: int, description: str, content: dict[str, Any]) -> dict[str, Any]:
    headers = {"X-Request-ID": "RequestId"}
    if status in RETRY_STATUSES:
        headers["Retry-After"] = "RetryAfter"
    if status == Unauthorized.status:
        headers["WWW-Authenticate"] = "Authenticate"
    references = {name: {"$ref": f"#/components/headers/{header}"} for name, header in headers.items()}
    return {"description": description, "headers": references, "content": content}
