"""The operations of the OpenAPI document, with their requests and responses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from utils.api.errors import Problem
from utils.api.everything import MAX_GRID_POINTS
from utils.api.openapi import examples
from utils.api.openapi.examples import Examples
from utils.api.openapi.problems import (
    IMAGE_PROBLEMS,
    MASK_PROBLEMS,
    MODEL_CHANGE,
    NOT_ACCEPTABLE,
    NOT_READY,
    RECORDS_TOO_LARGE,
    SERVICE_PROBLEMS,
    UNAUTHORIZED,
    UNAVAILABLE,
    problem_responses,
    response,
)
from utils.api.openapi.schemas import binary, reference
from utils.api.prompts import MAX_TOTAL_POINTS
from utils.api.received import FILE, FORM, JSON, PNG
from utils.api.requests import EmbedRequest, EverythingRequest, SegmentRequest
from utils.triton.versions import LOAD_ORDER

Operation = dict[str, Any]
ANY_SCHEME: list[dict[str, list[str]]] = [{"bearer": []}, {"apiKey": []}]

PARTS: dict[str, Any] = {
    "schema": reference("Segmentation"),
    "encoding": {
        "mask": {"contentType": "application/json, application/octet-stream, image/png"},
        "segmented_image": {"contentType": "image/png"},
        "result": {"contentType": JSON},
    },
    "examples": {
        "rle": {
            "summary": "RLE, a picture, and score, area and box of the mask",
            "value": examples.MULTIPART,
        }
    },
}


def segment() -> Operation:
    """Return the operation `POST /mobile_sam`."""
    return _post(
        "mobile_sam",
        "Segment objects in an image",
        "A request has either `input_image` or `image_id`, and one object (points, a `box`, or both) or several in "
        f"`prompts`, with at most {MAX_TOTAL_POINTS} points together. The response is `multipart/form-data`; with "
        "`Accept: application/json` one JSON document, with `Accept: image/png` the mask or the picture alone.",
        request=(SegmentRequest, examples.SEGMENT_REQUESTS),
        returns="parts, one JSON document, or the mask or the picture alone, by the header `Accept`",
        content={
            FORM: PARTS,
            JSON: _content("Document", "Masks as RLE", examples.DOCUMENT),
            PNG: {
                "schema": binary("the mask, or the picture if `segmented_image` is `overlay` or `cutout`"),
                "examples": {"picture": {"summary": "A picture", "value": examples.PICTURE}},
            },
        },
        problems=(NOT_ACCEPTABLE, *MASK_PROBLEMS),
    )


def embed() -> Operation:
    """Return the operation `POST /embed`."""
    return _post(
        "embed",
        "Encode an image",
        "Does the expensive part in advance. Requests with the returned `image_id` are fast.",
        request=(EmbedRequest, examples.EMBED_REQUESTS),
        returns="id and size of the image",
        content={JSON: _content("Image", "An encoded image", examples.IMAGE)},
    )


def everything() -> Operation:
    """Return the operation `POST /everything`."""
    lines = {
        "schema": {
            "type": "array",
            "description": "JSON lines if `progress` is true, the last with the result or the failure",
            "items": {"oneOf": [reference("Progress"), reference("Failure")]},
        },
        "examples": {"lines": {"summary": "With progress", "value": examples.LINES}},
    }
    return _post(
        "everything",
        "Segment everything in an image",
        "Returns the masks of a grid of points that reach the thresholds, without duplicates. With `progress` the "
        f"response has no time limit. The grids of all crops have at most {MAX_GRID_POINTS} points together.",
        request=(EverythingRequest, examples.EVERYTHING_REQUESTS),
        returns="the masks as Segment Anything's automatic-mask records",
        content={
            JSON: _content("Everything", "Without progress", examples.EVERYTHING),
            "application/x-ndjson": lines,
        },
        problems=RECORDS_TOO_LARGE,
    )


def info() -> Operation:
    """Return the operation `GET /info`."""
    return _get(
        "info",
        "Service information",
        "Whether an API key is required, and what the service has loaded.",
        returns="information about the service",
        content={JSON: _content("Info", "A service without API keys", examples.INFO)},
    )


def livez() -> Operation:
    """Return the operation `GET /livez`."""
    return _get(
        "livez", "Liveness probe", "Also available as `/healthz`.", returns="`alive`", content=_text("Alive", "alive\n")
    )


def readyz() -> Operation:
    """Return the operation `GET /readyz`."""
    return _get(
        "readyz",
        "Readiness probe",
        "Ready when every model has completed an inference recently.",
        returns="`ready`",
        content=_text("Ready", "ready\n"),
        problems=NOT_READY,
    )


def metrics() -> Operation:
    """Return the operation `GET /metrics`."""
    return _get(
        "metrics",
        "Prometheus metrics",
        "Requests, durations and the state of the models.",
        returns="Prometheus text format",
        content=_text("An excerpt", examples.METRICS),
    )


def models() -> Operation:
    """Return the operation `GET /admin/models`."""
    return _admin("models", "List models", "Returns the state of every version.")


def load_models() -> Operation:
    """Return the operation `POST /admin/models/load`."""
    return _admin(
        "load_models",
        "Load added and unload removed model versions",
        "Follows the model repository without dropping a request; answers when all changes are done.",
        MODEL_CHANGE,
    )


def load_model() -> Operation:
    """Return the operation `POST /admin/models/{model}/load`."""
    description = "Loads the versions it had before it was unloaded."
    return _with_model_parameter(_admin("load_model", "Load a model", description, MODEL_CHANGE))


def unload_model() -> Operation:
    """Return the operation `POST /admin/models/{model}/unload`."""
    description = "Completes current requests first. The service is not ready afterwards."
    return _with_model_parameter(_admin("unload_model", "Unload a model", description, MODEL_CHANGE))


def _with_model_parameter(operation: Operation) -> Operation:
    schema = {"type": "string", "enum": list(LOAD_ORDER)}
    name = {"name": "model", "in": "path", "required": True, "description": "name of the model", "schema": schema}
    return {**operation, "parameters": [name, *operation["parameters"]]}


def _admin(name: str, summary: str, description: str, problems: Iterable[Problem] = ()) -> Operation:
    """Return an admin operation; arguments as for `_post`."""
    content = {JSON: _content("Models", "Version 2 has replaced version 1", examples.MODELS)}
    operation = {
        **_base("Administration", name, summary, description),
        "responses": {
            "200": response(200, "the current state of all models", content),
            **problem_responses([*problems, UNAVAILABLE]),
        },
    }
    return with_api_key(operation, need_key=True)


def with_api_key(operation: Operation, need_key: bool) -> Operation:
    """Return the operation with the requirement of an API key if `need_key`."""
    if not need_key:
        return operation
    responses = {**operation["responses"], **problem_responses(UNAUTHORIZED)}
    return {**operation, "security": ANY_SCHEME, "responses": dict(sorted(responses.items()))}


def _content(model: str, summary: str, example: dict[str, Any]) -> dict[str, Any]:
    return {"schema": reference(model), "examples": {model.lower(): {"summary": summary, "value": example}}}


def _text(summary: str, example: str) -> dict[str, Any]:
    return {
        "text/plain": {"schema": {"type": "string"}, "examples": {"text": {"summary": summary, "value": example}}},
    }


def _post(
    name: str,
    summary: str,
    description: str,
    *,
    request: tuple[type[BaseModel], Examples],
    returns: str,
    content: dict[str, Any],
    problems: Iterable[Problem] = (),
) -> Operation:
    """Return an inference operation: a POST of JSON, of a form or of an image file.

    Args:
        name: operation id.
        summary: one-line summary.
        description: further sentences.
        request: model and examples of the request.
        returns: description of the 200 response.
        content: content of the 200 response by media type.
        problems: problems in addition to those of all inference operations.
    """
    model, requests = request
    body = {"schema": reference(model.__name__), "examples": requests}
    fields = {"image": binary("a PNG, JPEG or WebP file"), "request": reference(model.__name__)}
    form = {
        "schema": {"type": "object", "description": "the image file and the other fields", "properties": fields},
        "encoding": {"request": {"contentType": JSON}},
    }
    points = "`x` and `y` of a point, repeated for several, and " if "pos_coords" in model.model_fields else ""
    file = binary(
        f"a PNG, JPEG or WebP file, also as `image/...`; the query has {points}the fields whose values are not nested"
    )
    return {
        **_base("Segmentation", name, summary, description),
        "requestBody": {"required": True, "content": {JSON: body, FORM: form, FILE: {"schema": file}}},
        "responses": {
            "200": response(200, returns, content),
            **problem_responses([*SERVICE_PROBLEMS, *IMAGE_PROBLEMS, *problems]),
        },
    }


def _get(
    name: str,
    summary: str,
    description: str,
    *,
    returns: str,
    content: dict[str, Any],
    problems: Iterable[Problem] = (),
) -> Operation:
    """Return a GET operation; arguments as for `_post`."""
    return {
        **_base("Operation", name, summary, description),
        "responses": {"200": response(200, returns, content), **problem_responses(problems)},
    }


def _base(tag: str, name: str, summary: str, description: str) -> Operation:
    return {
        "tags": [tag],
        "operationId": name,
        "summary": summary,
        "description": description,
        "parameters": [{"$ref": "#/components/parameters/RequestId"}],
    }
