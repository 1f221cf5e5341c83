"""The operations of the OpenAPI document, with their requests and responses."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from utils.api.errors import Problem
from utils.api.everything import MAX_GRID_POINTS
from utils.api.inputs import MAX_TOTAL_POINTS
from utils.api.openapi import examples
from utils.api.openapi.problems import (
    IMAGE_PROBLEMS,
    MASK_PROBLEMS,
    MODEL_CHANGE,
    NOT_ACCEPTABLE,
    NOT_READY,
    RECORDS_TOO_LARGE,
    SERVICE_PROBLEMS,
    TOO_MUCH_WORK,
    UNAUTHORIZED,
    UNAVAILABLE,
    problem_responses,
    response,
)
from utils.api.openapi.schemas import binary, reference
from utils.api.received import FILE, FORM, JSON, PNG
from utils.api.requests import EmbedRequest, EverythingRequest, SegmentRequest
from utils.triton.versions import LOAD_ORDER

IMAGE_WORK_PROBLEMS = (*SERVICE_PROBLEMS, *IMAGE_PROBLEMS)

Methods = dict[str, dict[str, Any]]
"""Operations of a path by method."""


def inference_paths(need_key: bool) -> dict[str, Methods]:
    """Return the operations with an image by path; `need_key` if they require an API key."""
    parts = {
        "schema": reference("Segmentation"),
        "encoding": {
            "mask": {"contentType": "application/json, application/octet-stream, image/png"},
            "segmented_image": {"contentType": PNG},
            "result": {"contentType": JSON},
        },
        "examples": _example("rle", "RLE, a picture, and score, area and box of the mask", examples.MULTIPART),
    }
    picture = {
        "schema": binary("the mask, or the picture if `segmented_image` is `overlay` or `cutout`"),
        "examples": _example("picture", "A picture", examples.PICTURE),
    }
    lines = {
        "schema": {
            "type": "array",
            "description": "JSON lines if `progress` is true, the last with the result or the failure",
            "items": {"oneOf": [reference("Progress"), reference("Failure")]},
        },
        "examples": _example("lines", "With progress", examples.LINES),
    }
    segment = _post(
        "mobile_sam",
        "Segment objects in an image",
        "A request has either `input_image` or `image_id`, and one object (points, a `box`, or both) or several in "
        f"`prompts`, with at most {MAX_TOTAL_POINTS} points together. The response is `multipart/form-data`; with "
        "`Accept: application/json` one JSON document, with `Accept: image/png` the mask or the picture alone.",
        (SegmentRequest, examples.SEGMENT_REQUESTS),
        _answers(
            "parts, one JSON document, or the mask or the picture alone, by the header `Accept`",
            {FORM: parts, JSON: _content("Document", "Masks as RLE", examples.DOCUMENT), PNG: picture},
            [*IMAGE_WORK_PROBLEMS, NOT_ACCEPTABLE, *MASK_PROBLEMS],
            need_key,
        ),
    )
    embed = _post(
        "embed",
        "Encode an image",
        "Does the expensive part in advance. Requests with the returned `image_id` are fast.",
        (EmbedRequest, examples.EMBED_REQUESTS),
        _answers(
            "id and size of the image",
            {JSON: _content("Image", "An encoded image", examples.IMAGE)},
            IMAGE_WORK_PROBLEMS,
            need_key,
        ),
    )
    everything = _post(
        "everything",
        "Segment everything in an image",
        "Returns the masks of a grid of points that reach the thresholds, without duplicates. With `progress` the "
        f"response has no time limit. The grids of all crops have at most {MAX_GRID_POINTS} points together.",
        (EverythingRequest, examples.EVERYTHING_REQUESTS),
        _answers(
            "the masks as Segment Anything's automatic-mask records",
            {
                JSON: _content("Everything", "Without progress", examples.EVERYTHING),
                "application/x-ndjson": lines,
            },
            [*IMAGE_WORK_PROBLEMS, *RECORDS_TOO_LARGE, TOO_MUCH_WORK],
            need_key,
        ),
    )
    return {"/mobile_sam": segment, "/embed": embed, "/everything": everything}


def service_paths(metrics_need_key: bool) -> dict[str, Methods]:
    """Return information, probes and metrics by path; `metrics_need_key` if `/metrics` requires an API key."""
    info = (
        "Service information",
        "Whether an API key is required, and what the service has loaded.",
        _answers(
            "information about the service", {JSON: _content("Info", "A service without API keys", examples.INFO)}
        ),
    )
    livez = ("Liveness probe", "Also available as `/healthz`.", _answers("`alive`", _text("Alive", "alive\n")))
    readyz = (
        "Readiness probe",
        "Ready when every model has completed an inference recently.",
        _answers("`ready`", _text("Ready", "ready\n"), NOT_READY),
    )
    metrics = (
        "Prometheus metrics",
        "Requests, durations and the state of the models.",
        _answers("Prometheus text format", _text("An excerpt", examples.METRICS), need_key=metrics_need_key),
    )
    paths = {"info": info, "livez": livez, "readyz": readyz, "metrics": metrics}
    return {
        f"/{name}": {"get": {**_base("Operation", name, summary, description), **answers}}
        for name, (summary, description, answers) in paths.items()
    }


def admin_paths() -> dict[str, Methods]:
    """Return the operations below `/admin` by path."""
    schema = {"type": "string", "enum": list(LOAD_ORDER)}
    model = {"name": "model", "in": "path", "required": True, "description": "name of the model", "schema": schema}
    content = {JSON: _content("Models", "Version 2 has replaced version 1", examples.MODELS)}

    def admin(name: str, summary: str, description: str, *parameters: Any, change: bool = True) -> dict[str, Any]:
        problems = [*MODEL_CHANGE, UNAVAILABLE] if change else [UNAVAILABLE]
        return {
            **_base("Administration", name, summary, description, *parameters),
            **_answers("the current state of all models", content, problems, need_key=True),
        }

    listed = admin("models", "List models", "Returns the state of every version.", change=False)
    followed = admin(
        "load_models",
        "Load added and unload removed model versions",
        "Follows the model repository without dropping a request; answers when all changes are done.",
    )
    loaded = admin("load_model", "Load a model", "Loads the versions it had before it was unloaded.", model)
    unloaded = admin(
        "unload_model",
        "Unload a model",
        "Completes current requests first. The service is not ready afterwards.",
        model,
    )
    return {
        "/admin/models": {"get": listed},
        "/admin/models/load": {"post": followed},
        "/admin/models/{model}/load": {"post": loaded},
        "/admin/models/{model}/unload": {"post": unloaded},
    }


def _base(tag: str, name: str, summary: str, description: str, *parameters: Any) -> dict[str, Any]:
    return {
        "tags": [tag],
        "operationId": name,
        "summary": summary,
        "description": description,
        "parameters": [*parameters, {"$ref": "#/components/parameters/RequestId"}],
    }


def _post(
    name: str,
    summary: str,
    description: str,
    requests: tuple[type[BaseModel], examples.Examples],
    answers: dict[str, Any],
) -> Methods:
    return {"post": {**_base("Segmentation", name, summary, description), **_body(*requests), **answers}}


def _body(model: type[BaseModel], requests: examples.Examples) -> dict[str, Any]:
    """Return the body of a request with an image: JSON, a form or an image file."""
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
    return {"requestBody": {"required": True, "content": {JSON: body, FORM: form, FILE: {"schema": file}}}}


def _answers(
    returns: str, content: dict[str, Any], problems: Sequence[Problem] = (), need_key: bool = False
) -> dict[str, Any]:
    security: dict[str, Any] = {"security": [{"bearer": []}, {"apiKey": []}]} if need_key else {}
    errors = problem_responses([*problems, *UNAUTHORIZED] if need_key else problems)
    return {"responses": {"200": response(200, returns, content), **errors}, **security}


def _example(name: str, summary: str, value: Any) -> examples.Examples:
    return {name: {"summary": summary, "value": value}}


def _content(model: str, summary: str, example: dict[str, Any]) -> dict[str, Any]:
    return {"schema": reference(model), "examples": _example(model.lower(), summary, example)}


def _text(summary: str, example: str) -> dict[str, Any]:
    return {"text/plain": {"schema": {"type": "string"}, "examples": _example("text", summary, example)}}
