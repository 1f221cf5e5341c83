"""The OpenAPI document, in place of BentoML's, which names error answers this service does not give."""

from __future__ import annotations

from typing import Any

from utils.info import VERSION
from utils.openapi import operations
from utils.openapi.operations import guarded
from utils.openapi.schemas import schemas

DESCRIPTION = """
Send an image and a few prompts (clicks, a box), get a mask and a picture: MobileSAM, served by NVIDIA Triton.

[Click on an image](ui) to try it by hand.

An image is encoded once, with the first request that sends it or ahead of that by `/embed`; from then on prompts name
it by the `image_id` of any answer.

Every error is `application/problem+json`: `type` in it is `urn:mobile-sam:` and one of the names that each operation
lists, and `errors` names each offending field, what was expected and what came.

[`/info`](info) names the weights in use.
"""

TAGS = [
    {"name": "Segmentation", "description": "Images in, masks out"},
    {"name": "Operation", "description": "What serves, and how it is"},
]
ADMINISTRATION = {"name": "Administration", "description": "For operators, who have keys of their own"}

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
    "bearer": {"type": "http", "scheme": "bearer", "description": "an API key"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "the same in a header of its own"},
}


def document(*, need_key: bool = False, metrics_need_key: bool = False, admin: bool = False) -> dict[str, Any]:
    """The OpenAPI 3.1 document of the service.

    Args:
        need_key: whether requests that cost work need an API key.
        metrics_need_key: whether `/metrics` does.
        admin: whether there are operators, and paths for them.
    """
    keyed = {"securitySchemes": SECURITY_SCHEMES} if need_key or metrics_need_key or admin else {}
    return {
        "openapi": "3.1.1",
        "info": {"title": "MobileSAM on Triton", "version": VERSION, "description": DESCRIPTION},
        "servers": [{"url": ".", "description": "this service"}],
        "tags": [*TAGS, ADMINISTRATION] if admin else TAGS,
        "paths": {
            "/mobile_sam": {"post": guarded(operations.segment(), need_key)},
            "/embed": {"post": guarded(operations.embed(), need_key)},
            "/everything": {"post": guarded(operations.everything(), need_key)},
            "/info": {"get": operations.info()},
            "/livez": {"get": operations.livez()},
            "/readyz": {"get": operations.readyz()},
            "/metrics": {"get": guarded(operations.metrics(), metrics_need_key)},
            **(_administration() if admin else {}),
        },
        "components": {
            "schemas": schemas(admin=admin),
            "headers": HEADERS,
            "parameters": {"RequestId": REQUEST_ID},
            **keyed,
        },
    }


def _administration() -> dict[str, Any]:
    return {
        "/admin/models": {"get": operations.models()},
        "/admin/models/load": {"post": operations.load_models()},
        "/admin/models/{model}/load": {"post": operations.load_model()},
        "/admin/models/{model}/unload": {"post": operations.unload_model()},
    }
