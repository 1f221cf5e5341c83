"""What the parsers get of hostile bodies: few parts, few values, few bytes beside images."""

import asyncio
from typing import Any

import pytest
from pydantic import BaseModel
from python_multipart.multipart import MultipartParser
from starlette.requests import Request

from tests.chaos.hostile_bodies import hostile_bodies
from utils.api.large_json import MAX_OTHER_BYTES
from utils.api.request_body import MAX_VALUES, receive
from utils.api.requests import MAX_IMAGES, EmbedRequest, SegmentRequest
from utils.errors import ServiceError

SIZE = 12 * 2**20
MODELS: dict[str, Any] = {"/embed": EmbedRequest, "/mobile_sam": SegmentRequest}
MAX_CALLBACKS = 20 * MAX_IMAGES
NAMES = [name for name, request in hostile_bodies(1000) if request.path.partition("?")[0] in MODELS]


@pytest.mark.parametrize("name", NAMES)
def test_parsers_get_little_of_a_hostile_body(monkeypatch, name):
    callbacks: list[str] = []
    parsed: list[bytes] = []
    callback = MultipartParser.callback
    validate: Any = BaseModel.__dict__["model_validate_json"].__func__

    def counting(self, name, *given):
        callbacks.append(name)
        callback(self, name, *given)

    def noting(cls: Any, body: Any, /) -> Any:
        parsed.append(body)
        return validate(cls, body)

    monkeypatch.setattr(MultipartParser, "callback", counting)
    monkeypatch.setattr(BaseModel, "model_validate_json", classmethod(noting))
    hostile = next(request for each, request in hostile_bodies(SIZE) if each == name)
    path, _, query = hostile.path.partition("?")
    headers = [(key.lower().encode(), value.encode()) for key, value in hostile.headers.items()]
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": query.encode(),
        "headers": headers,
    }

    async def body() -> dict[str, object]:
        return {"type": "http.request", "body": hostile.body, "more_body": False}

    refused = False
    try:
        asyncio.run(receive(Request(scope, body), MODELS[path]))
    except ServiceError as error:
        refused = error.status < 500
    assert refused or name.startswith(
        ("form: one image", "form: half", "JSON: an image", "JSON: images", "head: ")
    )
    assert len(callbacks) < MAX_CALLBACKS
    for text in parsed:
        assert sum(map(text.count, (b",", b"[", b"{"))) <= MAX_VALUES
        assert text.count(b"\\") <= MAX_OTHER_BYTES
        assert (
            len(text) <= MAX_OTHER_BYTES
            or b'": "AAA' in text
            or b'": ["AAA' in text
            or b"////" in text
        )
