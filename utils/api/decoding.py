"""Embeddings of images and the decoder's file, for callers who decode by themselves."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import orjson
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from utils.api.answers import file_response
from utils.api.errors import NotLoaded, OtherWeights, unknown_version
from utils.api.info import InfoEndpoint
from utils.api.inputs import Job, image_source
from utils.api.jobs import Segmenter
from utils.api.received import parse_body, query_fields
from utils.api.requests import DecoderRequest, ImageFields
from utils.edge.connections import EMBEDDING
from utils.observability.context import CALLER
from utils.triton.versions import DECODER, weights_record

DECODER_FILE = "/decoder.onnx"
LOCAL_PATHS = (EMBEDDING, DECODER_FILE)
EMBEDDING_OPTIONS = {"embedding": True}
KEEP, ASK_AGAIN = "max-age=31536000, immutable", "no-cache"


class LocalDecoding:
    """ASGI applications of `LOCAL_PATHS`. Their `ServiceError`s are left to the edge."""

    def __init__(self, segmenter: Callable[[], Segmenter], repository: Path, info: InfoEndpoint) -> None:
        """Combine the segmenter, the folder from which Triton loads models, and what it has loaded."""
        self._segmenter, self._repository, self._info = segmenter, repository, info
        self.pages: dict[str, ASGIApp] = {EMBEDDING: self.embedding, DECODER_FILE: self.decoder}

    async def embedding(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the embedding of an image or a region as a safetensors file."""
        request = Request(scope)
        image_id = scope["path"].removeprefix(EMBEDDING.partition("{")[0])
        query = query_fields(request.query_params.multi_items(), ImageFields, image_id=image_id)
        fields = parse_body(query, ImageFields)
        job = Job({}, EMBEDDING_OPTIONS, fields.model_version)
        parts = await self._segmenter().segment(image_source(fields), job)
        etag = orjson.loads(bytes(parts.result))["etag"]
        await file_response(parts.mask, etag, f"private, {ASK_AGAIN}", request)(scope, receive, send)

    async def decoder(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the decoder's ONNX file of a loaded version."""
        request = Request(scope)
        fields = parse_body(query_fields(request.query_params.multi_items(), DecoderRequest), DecoderRequest)
        loaded = (await self._info.document()).loaded
        if not loaded:
            raise NotLoaded("no version of the model is loaded; retry later")
        named = {each.version: each.weights.sha256 for each in loaded if fields.model_version in (None, each.version)}
        if fields.model_version and not named:
            raise unknown_version(fields.model_version)
        version = max((each for each, weights in named.items() if fields.weights in (None, weights)), default=None)
        if version is None:
            raise OtherWeights(" or ".join(named.values()), str(fields.weights))
        file, tag = await asyncio.to_thread(self._read, version, named[version])
        kept = f"{'private' if CALLER.get() else 'public'}, {KEEP}" if fields.weights else ASK_AGAIN
        await file_response(file, tag, kept, request)(scope, receive, send)

    def _read(self, version: int, weights: str) -> tuple[bytes, str]:
        """Return the decoder of a version and its id.

        Raises:
            OtherWeights: the file is not that of the loaded weights, but of others that Triton has not loaded yet.
        """
        try:
            file = (self._repository / DECODER / str(version) / "model.onnx").read_bytes()
        except OSError:
            raise OtherWeights(weights, "none: the file was removed") from None
        record = weights_record(self._repository, version)  # written after the file, and removed before that changes
        if record.get("sha256") != weights:
            raise OtherWeights(weights, record.get("sha256", "none"))
        return file, record["fingerprint"]
