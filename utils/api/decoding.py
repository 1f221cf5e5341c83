"""Embeddings of images and the decoder's file, for callers who decode by themselves."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from utils.api.answers import file_response
from utils.api.errors import FieldError, NotLoaded, OtherWeights, UnknownPath, unknown_version
from utils.api.info import InfoEndpoint
from utils.api.inputs import Job, image_source
from utils.api.jobs import Segmenter
from utils.api.received import Model, parameters_of, parse_body, query_fields
from utils.api.requests import DecoderRequest, ImageFields
from utils.edge.connections import EMBEDDING
from utils.observability.context import CALLER
from utils.triton.versions import DECODER, weights_record

EMBEDDING_JOB = Job({}, {"embedding": True})
IMMUTABLE = "max-age=31536000, immutable"
OFF = "expected MOBILE_SAM_LOCAL_DECODING=on, and a folder as MOBILE_SAM_MODEL_REPOSITORY, for this path"


class LocalDecoding:
    """ASGI applications of paths. Their `ServiceError`s are left to the edge."""

    def __init__(self, segmenter: Callable[[], Segmenter], repository: Path | None, info: InfoEndpoint) -> None:
        """Combine the segmenter, the folder from which Triton loads models (None: off), and what it has loaded."""
        self._segmenter, self._repository, self.info = segmenter, repository, info
        self.pages: dict[str, ASGIApp] = {EMBEDDING: self.embedding, "/decoder.onnx": self.decoder}

    async def embedding(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the embedding of an image or a region as a safetensors file."""
        request = Request(scope)
        fields = self._fields(request, ImageFields, image_id=scope["path"].split("/", 2)[2])
        job = replace(EMBEDDING_JOB, model_version=fields.model_version)
        parts = await self._segmenter().segment(image_source(fields), job)
        etag = orjson.loads(bytes(parts.result))["etag"]
        await file_response(parts.mask, etag, "private, no-cache", request)(scope, receive, send)

    async def decoder(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the decoder's ONNX file of a loaded version."""
        request = Request(scope)
        fields = self._fields(request, DecoderRequest)
        loaded = {each.version: each.weights.sha256 for each in (await self.info.document()).loaded}
        if not loaded:
            raise NotLoaded("no version of the model is loaded; retry later")
        same = [version for version, weights in loaded.items() if weights == fields.weights]
        version = fields.model_version or max(same or loaded)
        if version not in loaded:
            raise unknown_version(version)
        expected = loaded[version]
        file, record = await asyncio.to_thread(self._read, version)
        if wrong := {fields.weights or expected, record.get("sha256", "none")} - {expected}:
            raise OtherWeights(errors=[FieldError("weights", f"{expected}, which are loaded", wrong.pop())])
        kept = f"{'private' if CALLER.get() else 'public'}, {IMMUTABLE}" if fields.weights else "no-cache"
        await file_response(file, record["fingerprint"], kept, request)(scope, receive, send)

    def _fields(self, request: Request, model: type[Model], **fields: str) -> Model:
        """Return the fields of a request's path and query; raise `UnknownPath` where local decoding is off."""
        if self._repository is None:
            raise UnknownPath(OFF)
        return parse_body(query_fields(parameters_of(request), model, **fields), model)

    def _read(self, version: int) -> tuple[bytes, dict[str, Any]]:
        """Return the decoder of a version, and the record of its weights, empty if a file is missing."""
        assert self._repository
        path = self._repository / DECODER / str(version) / "model.onnx"
        file = path.read_bytes() if path.is_file() else b""
        # The record is written after the file, and removed before that changes.
        return file, weights_record(self._repository, version) if file else {}
