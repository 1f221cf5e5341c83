"""The operations: what each path takes and answers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from utils.errors import Problem
from utils.everything import MAX_CLICKS
from utils.openapi import examples
from utils.openapi.examples import Examples
from utils.openapi.problems import (
    NO_KEY,
    NOT_CHANGED,
    NOT_READY,
    REFUSALS,
    REJECTIONS,
    TOO_MANY_RECORDS,
    TOO_MUCH,
    answer,
    problem_answers,
)
from utils.openapi.schemas import reference
from utils.prompts import MAX_POINTS_TOGETHER
from utils.schemas import EmbedRequest, EverythingRequest, SegmentRequest
from utils.versions import LOAD_ORDER

Operation = dict[str, Any]
JSON = "application/json"
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
            "summary": "Run lengths, a picture, and what is known of the mask",
            "value": examples.MULTIPART,
        }
    },
}


def segment() -> Operation:
    """The operation `POST /mobile_sam`."""
    return _work(
        "mobile_sam",
        "Find objects on an image",
        "Clicks or boxes in, masks and a picture out. A request has exactly one of `input_image` and `image_id`, and a "
        "point in `pos_coords` or `neg_coords` or a `box`, or several such objects in `prompts`: at most "
        f"{MAX_POINTS_TOGETHER} points together.",
        request=(SegmentRequest, examples.SEGMENT_REQUESTS),
        answered="the parts `mask`, `segmented_image` (left out for `none`) and `result`, in this order",
        content={"multipart/form-data": PARTS},
        problems=TOO_MUCH,
    )


def embed() -> Operation:
    """The operation `POST /embed`."""
    return _work(
        "embed",
        "Encode an image ahead of the first prompt",
        "The heavy part of the first request on an image, done before it is asked: prompts by the `image_id` of this "
        "answer are quick.",
        request=(EmbedRequest, examples.EMBED_REQUESTS),
        answered="the image's id and size",
        content={JSON: _content("Image", "The image", examples.IMAGE)},
    )


def everything() -> Operation:
    """The operation `POST /everything`."""
    lines = {
        "schema": {
            "type": "array",
            "description": "where `progress` is true: one JSON document a line",
            "items": {"oneOf": [reference("Progress"), reference("Failure")]},
        },
        "examples": {"lines": {"summary": "Where progress is true", "value": examples.LINES}},
    }
    return _work(
        "everything",
        "Find everything on an image",
        "A grid of clicks; masks that are neither certain nor stable enough, and repeated ones, are left out. With "
        "`progress` the answer begins at once and may take as long as it needs; without it there is a time limit. The "
        f"grids of all crops have together at most {MAX_CLICKS} clicks.",
        request=(EverythingRequest, examples.EVERYTHING_REQUESTS),
        answered="Segment Anything's automatic-mask records",
        content={
            JSON: _content("Everything", "Where progress is false", examples.EVERYTHING),
            "application/x-ndjson": lines,
        },
        problems=TOO_MANY_RECORDS,
    )


def info() -> Operation:
    """The operation `GET /info`."""
    return _reading(
        "info",
        "What serves here",
        "Version, weights, engine, limits, and whether a key is needed.",
        answered="what there is to know before a request",
        content={JSON: _content("Info", "A service without keys", examples.INFO)},
    )


def livez() -> Operation:
    """The operation `GET /livez`."""
    return _reading(
        "livez", "The process is alive", "Also at `/healthz`.", answered="`alive`", content=_text("Alive", "alive\n")
    )


def readyz() -> Operation:
    """The operation `GET /readyz`."""
    return _reading(
        "readyz",
        "The service takes requests",
        "Ready means that every model has answered an inference of late.",
        answered="`ready`",
        content=_text("Ready", "ready\n"),
        problems=NOT_READY,
    )


def metrics() -> Operation:
    """The operation `GET /metrics`."""
    return _reading(
        "metrics",
        "Prometheus metrics",
        "Answers by path and reason, durations, requests in progress, the models' state.",
        answered="the metrics",
        content=_text("A few lines of many", examples.METRICS),
    )


def models() -> Operation:
    """The operation `GET /admin/models`."""
    return _administering("models", "Which models are loaded", "Every version of every model.")


def load_models() -> Operation:
    """The operation `POST /admin/models/load`."""
    return _administering(
        "load_models",
        "Load what is new, unload what is gone",
        "Versions that the model repository has now are loaded, those that it no longer has are unloaded, and no "
        "request is dropped. The answer comes when it is done.",
        NOT_CHANGED,
    )


def load_model() -> Operation:
    """The operation `POST /admin/models/{model}/load`."""
    description = "One that was unloaded, in the versions that it had."
    return _of_one_model(_administering("load_model", "Load one model", description, NOT_CHANGED))


def unload_model() -> Operation:
    """The operation `POST /admin/models/{model}/unload`."""
    description = "All versions of it, when they have answered what they have begun; the service is not ready then."
    return _of_one_model(_administering("unload_model", "Unload one model", description, NOT_CHANGED))


def _of_one_model(operation: Operation) -> Operation:
    schema = {"type": "string", "enum": list(LOAD_ORDER)}
    name = {"name": "model", "in": "path", "required": True, "description": "its name", "schema": schema}
    return {**operation, "parameters": [name, *operation["parameters"]]}


def _administering(name: str, summary: str, description: str, problems: Iterable[Problem] = ()) -> Operation:
    """An operation for operators; arguments as of `_work`."""
    content = {JSON: _content("Models", "Version 2 has taken over from version 1", examples.MODELS)}
    answers = problem_answers([*problems, NOT_READY[0]])
    operation = {
        **_begun("Administration", name, summary, description),
        "responses": {"200": answer(200, "what is loaded now", content), **answers},
    }
    return guarded(operation, need_key=True)


def guarded(operation: Operation, need_key: bool) -> Operation:
    """The operation, for holders of an API key alone where one is needed."""
    if not need_key:
        return operation
    responses = {**operation["responses"], **problem_answers(NO_KEY)}
    return {**operation, "security": ANY_SCHEME, "responses": dict(sorted(responses.items()))}


def _content(model: str, summary: str, example: dict[str, Any]) -> dict[str, Any]:
    return {"schema": reference(model), "examples": {model.lower(): {"summary": summary, "value": example}}}


def _text(summary: str, example: str) -> dict[str, Any]:
    return {
        "text/plain": {"schema": {"type": "string"}, "examples": {"text": {"summary": summary, "value": example}}},
    }


def _work(
    name: str,
    summary: str,
    description: str,
    *,
    request: tuple[type[BaseModel], Examples],
    answered: str,
    content: dict[str, Any],
    problems: Iterable[Problem] = (),
) -> Operation:
    """A POST of JSON.

    Args:
        name: of the operation.
        summary: what it does.
        description: more on that.
        request: its model and examples.
        answered: what the 200 is.
        content: of the 200, by type.
        problems: beside those that all operations have.
    """
    model, requests = request
    body = {"schema": reference(model.__name__), "examples": requests}
    return {
        **_begun("Segmentation", name, summary, description),
        "requestBody": {"required": True, "content": {JSON: body}},
        "responses": {"200": answer(200, answered, content), **problem_answers([*REFUSALS, *REJECTIONS, *problems])},
    }


def _reading(
    name: str,
    summary: str,
    description: str,
    *,
    answered: str,
    content: dict[str, Any],
    problems: Iterable[Problem] = (),
) -> Operation:
    """A GET; arguments as of `_work`."""
    return {
        **_begun("Operation", name, summary, description),
        "responses": {"200": answer(200, answered, content), **problem_answers(problems)},
    }


def _begun(tag: str, name: str, summary: str, description: str) -> Operation:
    return {
        "tags": [tag],
        "operationId": name,
        "summary": summary,
        "description": description,
        "parameters": [{"$ref": "#/components/parameters/RequestId"}],
    }
