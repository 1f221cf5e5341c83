"""The operations of the OpenAPI document, with their requests and responses."""

import re
from collections.abc import Collection, Iterable
from functools import partial
from typing import Any, Protocol

from pydantic import BaseModel

from utils.api.accept import FILE, JSON, PNG
from utils.api.forms import FORM
from utils.api.inputs import MAX_TOTAL_POINTS
from utils.api.openapi import examples, problems
from utils.api.openapi.problems import UNAUTHORIZED, problem_responses, reference, response
from utils.api.requests import (
    DecoderRequest,
    EmbedRequest,
    EverythingRequest,
    ImageFields,
    SegmentRequest,
)
from utils.api.responses import (
    Document,
    EmbedJob,
    Everything,
    Failure,
    Image,
    Info,
    ModelList,
    Parts,
    Progress,
)
from utils.errors import Problem
from utils.inference.everything import MAX_GRID_POINTS
from utils.triton.versions import LOAD_ORDER

IMAGE_ID = {"$ref": "#/components/parameters/ImageId"}
TOOLS = "Annotation tools"
"""Tag of the paths in the protocols of annotation tools."""

Methods = dict[str, dict[str, Any]]
"""Operations of a path by method."""


class Tool(Protocol):
    """Paths in the protocol of one annotation tool, as `utils.integrations.adapter.Adapter` has
    them.
    """

    @property
    def name(self) -> str:
        """Name in `MOBILE_SAM_INTEGRATIONS`."""

    @property
    def pages(self) -> Collection[str]:
        """Paths of GET requests."""

    @property
    def work(self) -> Collection[str]:
        """Paths of POST requests, which need an API key if the service has keys."""

    @property
    def pages_need_key(self) -> bool:
        """Whether `pages` need one as well."""


def inference_paths(need_key: bool) -> dict[str, Methods]:
    """Return the operations with an image by path; `need_key` if they require an API key."""
    parts = {
        "schema": reference(Parts),
        "encoding": {
            "mask": {"contentType": f"{JSON}, {FILE}, {PNG}"},
            "segmented_image": {"contentType": PNG},
            "result": {"contentType": JSON},
        },
        "examples": _example(
            "rle", "RLE, a picture, and score, area and box of the mask", examples.MULTIPART
        ),
    }
    picture = {
        "schema": _binary("the mask, or the picture if `segmented_image` is `overlay` or `cutout`"),
        "examples": _example("picture", "A picture", examples.PICTURE),
    }
    lines = {
        "schema": {
            "type": "array",
            "description": (
                "JSON lines if `progress` is true, the last with the result or the failure"
            ),
            "items": {"oneOf": [reference(Progress), reference(Failure)]},
        },
        "examples": _example("lines", "With progress", examples.LINES),
    }
    operation = partial(_operation, tag="Segmentation", need_key=need_key, parameters=[IMAGE_ID])
    segment = operation(
        "mobile_sam",
        "Segment objects in an image",
        "A request has either `input_image` or `image_id`, and one object (points, a `box`, or"
        f" both) or several in `prompts`, with at most {MAX_TOTAL_POINTS} points together. By"
        " default the response is `multipart/form-data`; with `Accept: application/json` it is one"
        " JSON document, with `Accept: image/png` the mask or the picture alone.",
        "parts, one JSON document, or the mask or the picture alone, by the header `Accept`",
        # Swagger UI asks for the first one, and does not show the parts.
        {**_json(Document, "Masks as RLE", examples.DOCUMENT), FORM: parts, PNG: picture},
        problems=[*problems.SERVICE, *problems.IMAGE, problems.NOT_ACCEPTABLE, *problems.MASKS],
        requestBody=_body(SegmentRequest, "mobile_sam"),
    )
    embed = operation(
        "embed",
        "Encode an image",
        "Does the expensive part in advance. Requests with the returned `image_id` are fast."
        " Several images (`images`, `image_ids`, or parts `image` of a form) are encoded in the"
        " background, one at a time, while no caller waits; each counts as a request in the rate"
        " limit.",
        "id and size of the image",
        _json(Image, "An encoded image", examples.IMAGE),
        problems=[*problems.SERVICE, *problems.IMAGE, *problems.QUEUE],
        requestBody=_body(EmbedRequest, "embed"),
    )
    for described in (segment, embed):
        _add_header(described, "X-Image-Orientation", "ImageOrientation")
    progress = _json(EmbedJob, "One of two images is encoded", examples.JOB)
    embed["responses"]["202"] = response(202, "the job of several images", progress)
    id_of_job = {
        "name": "job",
        "in": "path",
        "required": True,
        "description": "id",
        "schema": {"type": "string"},
    }
    job = partial(operation, returns="the job", content=progress, parameters=[id_of_job, IMAGE_ID])
    everything = operation(
        "everything",
        "Segment everything in an image",
        "Returns the masks of a grid of points that reach the thresholds, without duplicates. With"
        " `progress` the response has no time limit. The grids of all crops have at most"
        f" {MAX_GRID_POINTS} points together.",
        "the masks as Segment Anything's automatic-mask records",
        {
            **_json(Everything, "Without progress", examples.EVERYTHING),
            "application/x-ndjson": lines,
        },
        problems=[*problems.SERVICE, *problems.IMAGE, *problems.RECORDS],
        requestBody=_body(EverythingRequest, "everything"),
    )
    _add_header(everything, "X-Image-Orientation", "ImageOrientation")
    jobs = {
        "get": job(
            "embed_progress",
            "Progress of a job",
            "Jobs are kept over restarts.",
            problems=problems.JOB,
        ),
        "delete": job(
            "embed_cancel",
            "Cancel a job",
            "Encoded images stay.",
            problems=[*problems.JOB, problems.FOREIGN_PAGE],
        ),
    }
    posts = segment, embed, everything
    paths: dict[str, Methods] = {f"/{post['operationId']}": {"post": post} for post in posts}
    return {**paths, "/embed/{job}": jobs}


def local_paths(need_key: bool) -> dict[str, Methods]:
    """Return the operations for callers who decode by themselves, by path; `need_key` if they
    require an API key.
    """
    image_id = {
        "name": "image_id",
        "in": "path",
        "required": True,
        "description": "id of a known image",
    }
    operation = partial(_operation, tag="Segmentation", need_key=need_key)
    embedding = operation(
        "embedding",
        "Embedding of an image",
        "The tensors that the decoder takes, in float16 by the names of its inputs. The metadata"
        " name `image_id`, `width`, `height`, `orientation` and `range` of the image, the `region`,"
        " `frame_width` and `frame_height` of it in the frame of the decoder's points, `squashed`"
        " (whether it fills the frame), `weights`, `weights_sha256` and `model_version`. A region"
        " that is not encoded yet is encoded.",
        "a safetensors file",
        _file("(the bytes of a safetensors file)"),
        problems=[*problems.WITHOUT_BODY, problems.IMAGE[0]],
        parameters=[
            {**image_id, "schema": {"type": "string"}},
            *_query(ImageFields, "region", "model_version"),
            IMAGE_ID,
        ],
    )
    decoder = operation(
        "decoder",
        "Decoder of a loaded version",
        "Takes an embedding and prompts, returns logits and scores. With `weights` the file never"
        " changes.",
        "an ONNX file",
        _file("(the bytes of an ONNX file)"),
        problems=[*problems.WITHOUT_BODY, problems.OTHER_WEIGHTS],
        parameters=_query(DecoderRequest, "weights", "model_version"),
    )
    for download in (embedding, decoder):
        _add_header(download, "ETag", "ETag")
        download["responses"]["304"] = response(
            304, "the file that `If-None-Match` names is current", {}
        )
    return {"/embeddings/{image_id}": {"get": embedding}, "/decoder.onnx": {"get": decoder}}


def service_paths(metrics_need_key: bool) -> dict[str, Methods]:
    """Return information, probes and metrics by path; `metrics_need_key` if `/metrics` requires
    an API key.
    """
    info = _json(Info, "A service without API keys", examples.INFO)
    alive, ready = _text("Alive", "alive\n"), _text("Ready", "ready\n")
    metrics = _text("An excerpt", examples.METRICS)
    told = "Whether an API key is required, and what the service has loaded."
    probed = "Ready when every model has completed an inference recently."
    measured = "Requests, durations and the state of the models."
    is_ready = partial(_operation, returns="`ready`", content=ready, problems=problems.NOT_READY)
    operations = [
        _operation("info", "Service information", told, "information about the service", info),
        _operation("livez", "Liveness probe", "Answers while the process runs.", "`alive`", alive),
        _operation("healthz", "Liveness probe", "The same as `/livez`.", "`alive`", alive),
        is_ready("readyz", "Readiness probe", probed),
        is_ready("health", "Readiness probe", "The same as `/readyz`."),
        _operation(
            "metrics",
            "Prometheus metrics",
            measured,
            "Prometheus text format",
            metrics,
            need_key=metrics_need_key,
        ),
    ]
    return {f"/{described['operationId']}": {"get": described} for described in operations}


def admin_paths() -> dict[str, Methods]:
    """Return the operations below `/admin` by path."""
    operation = partial(
        _operation,
        returns="the current state of all models",
        content=_json(
            ModelList, "Version 2 has replaced version 1", examples.MODELS, name="models"
        ),
        need_key=True,
        tag="Administration",
    )
    schema = {"type": "string", "enum": list(LOAD_ORDER)}
    model = {
        "name": "model",
        "in": "path",
        "required": True,
        "description": "name of the model",
        "schema": schema,
    }
    change = partial(operation, problems=[*problems.MODEL_CHANGE, problems.UNAVAILABLE])
    change_model = partial(change, parameters=[model])
    followed = (
        "Follows the model repository without dropping a request; answers when all changes are"
        " done."
    )
    loaded = "Loads the versions it had before it was unloaded."
    unloaded = "Completes current requests first. The service is not ready afterwards."
    listed = operation(
        "models",
        "List models",
        "Returns the state of every version.",
        problems=[problems.UNAVAILABLE],
    )
    return {
        "/admin/models": {"get": listed},
        "/admin/models/load": {
            "post": change("load_models", "Load added and unload removed model versions", followed),
        },
        "/admin/models/{model}/load": {"post": change_model("load_model", "Load a model", loaded)},
        "/admin/models/{model}/unload": {
            "post": change_model("unload_model", "Unload a model", unloaded)
        },
    }


def tool_paths(tools: Iterable[Tool], need_key: bool) -> dict[str, Methods]:
    """Return the operations in the protocols of annotation tools by path, in short.

    Args:
        tools: the tools whose requests are answered.
        need_key: whether requests that run inference require an API key.
    """
    paths: dict[str, Methods] = {}
    for tool in tools:
        for method, names, keyed in (
            ("get", tool.pages, tool.pages_need_key),
            ("post", tool.work, True),
        ):
            for path in names:
                operation = _operation(
                    re.sub(r"\W+", "_", method + path),
                    f"For {tool.name}",
                    f"In the protocol of {tool.name}, which `docs/integrations` describes.",
                    "what the tool expects",
                    {},
                    tag=TOOLS,
                    need_key=need_key and keyed,
                )
                # Errors are in the tool's own form, too.
                operation["responses"] = {
                    "default": {"description": "an answer or an error that the tool understands"}
                }
                paths.setdefault(path, {})[method] = operation
    return paths


def _operation(
    name: str,
    summary: str,
    description: str,
    returns: str,
    content: dict[str, Any],
    *,
    problems: Iterable[Problem] = (),
    need_key: bool = False,
    tag: str = "Operation",
    parameters: Iterable[Any] = (),
    **body: Any,
) -> dict[str, Any]:
    errors = problem_responses([*problems, UNAUTHORIZED] if need_key else problems)
    return {
        "tags": [tag],
        "operationId": name,
        "summary": summary,
        "description": description,
        "parameters": [*parameters, {"$ref": "#/components/parameters/RequestId"}],
        **body,
        "responses": {"200": response(200, returns, content), **errors},
        **({"security": [{"bearer": []}, {"apiKey": []}]} if need_key else {}),
    }


def _add_header(operation: dict[str, Any], name: str, component: str) -> None:
    """Add a header to an operation's successful response."""
    operation["responses"]["200"]["headers"][name] = {"$ref": f"#/components/headers/{component}"}


def _body(model: type[ImageFields], operation: str) -> dict[str, Any]:
    """Return the body of a request with an image: JSON, a form or an image file."""
    body = {"schema": reference(model), "examples": examples.REQUESTS[operation]}
    fields = {"image": _binary("a PNG, JPEG or WebP file"), "request": reference(model)}
    form = {
        "schema": {
            "type": "object",
            "description": "the image file and the other fields",
            "properties": fields,
        },
        "encoding": {"request": {"contentType": JSON}},
    }
    points = (
        "`x` and `y` of a point, repeated for several, and "
        if "pos_coords" in model.model_fields
        else ""
    )
    file = _binary(
        f"a PNG, JPEG or WebP file, also as `image/...`; the query has {points}the fields whose"
        " values are not nested, as it may with the other types of body"
    )
    return {"required": True, "content": {JSON: body, FORM: form, FILE: {"schema": file}}}


def _query(model: type[BaseModel], *names: str) -> list[dict[str, Any]]:
    """Return optional fields of a model as parameters of a query, where lists are separated by
    commas.
    """
    fields = model.model_json_schema()["properties"]
    return [
        {
            "name": name,
            "in": "query",
            "explode": False,
            "description": fields[name]["description"],
            "schema": fields[name]["anyOf"][0],
        }
        for name in names
    ]


def _file(example: str) -> dict[str, Any]:
    return {
        FILE: {
            "schema": {"type": "string", "format": "binary"},
            "examples": _example("file", "A file", example),
        }
    }


def _binary(description: str) -> dict[str, str]:
    return {"type": "string", "description": description, "format": "binary"}


def _example(name: str, summary: str, value: Any) -> examples.Examples:
    return {name: {"summary": summary, "value": value}}


def _json(
    model: type[BaseModel], summary: str, example: dict[str, Any], *, name: str = ""
) -> dict[str, Any]:
    shown = _example(name or model.__name__.lower(), summary, example)
    return {JSON: {"schema": reference(model), "examples": shown}}


def _text(summary: str, example: str) -> dict[str, Any]:
    return {
        "text/plain": {"schema": {"type": "string"}, "examples": _example("text", summary, example)}
    }
