"""The OpenAPI document, and the Swagger page that shows it.

They replace BentoML's, which list errors that this service does not return, and load a script from
another host.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from starlette.responses import HTMLResponse, Response

from utils.api.info import VERSION
from utils.api.openapi.operations import (
    TOOLS,
    Tool,
    admin_paths,
    inference_paths,
    local_paths,
    service_paths,
    tool_paths,
)
from utils.api.openapi.problems import REFERENCE
from utils.api.requests import EmbedRequest, EverythingRequest, SegmentRequest
from utils.api.responses import Document, EmbedJob, Failure, Image, Info, ModelList, Parts, Progress

PAGE = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
DESCRIPTION = """
Image segmentation with MobileSAM on NVIDIA Triton: send an image and prompts (points, boxes), get \
masks and a picture.

[Click on an image](ui) to try it in the browser.

An image is encoded once: by the first request that sends it, or in advance by `/embed`. Later \
requests can refer to it
by the `image_id` of any response and need not send it again.

Errors are `application/problem+json` documents. `type` is `urn:mobile-sam:` followed by one of \
the names listed for
each operation, and `errors` lists each offending field with the expected and the received value.

[`/info`](info) returns the weights in use.
"""

TAGS = [
    {"name": "Segmentation", "description": "Segment objects in images"},
    {"name": "Operation", "description": "Service information, health and metrics"},
]
ANNOTATION_TOOLS = {
    "name": TOOLS,
    "description": "Requests in the protocols of annotation tools, in short",
}
ADMINISTRATION = {
    "name": "Administration",
    "description": "Load and unload models; requires an admin key",
}


def _header(description: str, **schema: Any) -> dict[str, Any]:
    return {"description": description, "required": True, "schema": schema}


HEADERS = {
    "RequestId": _header(
        "id of the request in the service log: the one that was sent, or a generated one",
        type="string",
    ),
    "ImageOrientation": {
        "description": (
            "EXIF orientation that turned the stored image into the displayed one, as in the result"
        ),
        "schema": {"type": "integer", "minimum": 1, "maximum": 8},
    },
    "ETag": _header("id of the file, for `If-None-Match`", type="string"),
    "RetryAfter": _header("seconds to wait before retrying", type="integer", minimum=1),
    "Authenticate": _header("authentication scheme for API keys", type="string"),
}
REQUEST_ID: dict[str, Any] = {
    "name": "X-Request-ID",
    "in": "header",
    "description": (
        "request id of your choice: 1 to 128 characters of `A-Z a-z 0-9 . _ -`; other ids are"
        " replaced"
    ),
    "schema": {"type": "string"},
}
IMAGE_ID: dict[str, Any] = {
    "name": "X-Image-Id",
    "in": "header",
    "description": (
        "SHA-256 of the image file in lower-case hexadecimal, as the `image_id` of responses, for"
        " load balancers that route by image. Another image's is refused; of several images it"
        " names one"
    ),
    "schema": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
}

SECURITY_SCHEMES: dict[str, Any] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "API key as a bearer token"},
    "apiKey": {
        "type": "apiKey",
        "in": "header",
        "name": "X-API-Key",
        "description": "API key in a separate header",
    },
}


def document(
    *,
    need_key: bool = False,
    metrics_need_key: bool = False,
    admin: bool = False,
    local_decoding: bool = True,
    tools: Collection[Tool] = (),
) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document, by what needs an API key and which optional paths there
    are.
    """
    security = (
        {"securitySchemes": SECURITY_SCHEMES} if need_key or metrics_need_key or admin else {}
    )
    return {
        "openapi": "3.1.1",
        "info": {"title": "MobileSAM on Triton", "version": VERSION, "description": DESCRIPTION},
        "servers": [{"url": ".", "description": "this service"}],
        "tags": [
            *TAGS,
            *([ADMINISTRATION] if admin else []),
            *([ANNOTATION_TOOLS] if tools else []),
        ],
        "paths": {
            **inference_paths(need_key),
            **(local_paths(need_key) if local_decoding else {}),
            **service_paths(metrics_need_key),
            **(admin_paths() if admin else {}),
            **tool_paths(tools, need_key),
        },
        "components": {
            "schemas": _schemas(admin=admin),
            "headers": HEADERS,
            "parameters": {"RequestId": REQUEST_ID, "ImageId": IMAGE_ID},
            **security,
        },
    }


class _Schema(GenerateJsonSchema):
    """Schemas without pydantic's titles of fields, which repeat their names."""

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002
        return False


def _schemas(*, admin: bool) -> dict[str, JsonSchemaValue]:
    """Return the schemas of the models by name; schemas of admin operations only if `admin`."""
    models: list[type[BaseModel]] = [SegmentRequest, EmbedRequest, EverythingRequest]
    models += [
        Document,
        Parts,
        Image,
        EmbedJob,
        Progress,
        Failure,
        Info,
        *([ModelList] if admin else []),
    ]
    _, schema = models_json_schema(
        [(model, "validation") for model in models],
        ref_template=REFERENCE,
        schema_generator=_Schema,
    )
    schemas = {}
    for name, definition in schema["$defs"].items():
        schemas[name] = {key: definition[key] for key in definition if key != "title"}
    return schemas


def pages(info: Info, **options: Any) -> dict[str, Response]:
    """Return the responses for `/` and `/docs.json`, and for `/docs` and `/openapi.json`, where
    others look for them.

    Options as in `document`, for what the information about the service does not tell.
    """
    text = orjson.dumps(
        document(need_key=info.key_needed, local_decoding=info.local_decoding, **options)
    )
    page, described = HTMLResponse(PAGE), Response(text, media_type="application/json")
    return {"/": page, "/docs": page, "/docs.json": described, "/openapi.json": described}
