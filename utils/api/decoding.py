"""Embeddings of images and the decoder's file, for callers who decode by themselves."""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from orchestrator import tensors
from utils.api.answers import file_response, has_file
from utils.api.info import InfoEndpoint
from utils.api.inputs import image_source
from utils.api.query import parameters_of, query_fields
from utils.api.request_body import Model, parse_body
from utils.api.requests import DecoderRequest, ImageFields
from utils.api.responses import Info
from utils.errors import (
    FieldError,
    InvalidRequest,
    NotLoaded,
    OtherWeights,
    UnknownPath,
    unknown_version,
)
from utils.inference.contents import OpenFile
from utils.inference.request import InferenceRequest
from utils.inference.segmenter import Segmenter
from utils.observability.context import KEY_NAME
from utils.observability.routes import EMBEDDING
from utils.triton.versions import read_record

EMBEDDING_REQUEST = InferenceRequest({}, {"embedding": True})
IMMUTABLE = "max-age=31536000, immutable"
DECODER_FILE, FILE = "/decoder.onnx", "model.onnx"
"""Path, and name of the file in the repository."""
MIN_AGE_S = 0.2
"""Age of what is known of Triton from which a request that does not fit it has it read again."""
OFF = (
    "expected MOBILE_SAM_LOCAL_DECODING=on, and a folder as MOBILE_SAM_MODEL_REPOSITORY, for this"
    " path"
)


class LocalDecoding:
    """ASGI applications of paths. Their `ServiceError`s are left to the edge."""

    def __init__(self, segmenter: Segmenter, repository: Path | None, info: InfoEndpoint) -> None:
        """Combine the segmenter, the folder from which Triton loads models (None: off), and what
        it has loaded.
        """
        self._segmenter, self._repository, self.info = segmenter, repository, info
        self.pages: dict[str, ASGIApp] = {EMBEDDING: self.embedding, DECODER_FILE: self.decoder}
        self.from_file = frozenset({DECODER_FILE})
        """Paths whose answers are read from a file piece by piece."""

    async def embedding(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the embedding of an image or a region as a safetensors file."""
        request = Request(scope)
        fields = self._fields(request, ImageFields, image_id=scope["path"].split("/", 2)[2])
        inference = replace(EMBEDDING_REQUEST, model_version=fields.model_version)
        parts = await self._segmenter.segment(image_source(fields), inference)
        etag = orjson.loads(bytes(parts.result))["etag"]
        file = None if has_file(etag, request) else parts.mask
        await file_response(file, etag, "private, no-cache")(scope, receive, send)

    async def decoder(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the decoder's ONNX file of a loaded version."""
        request = Request(scope)
        fields = self._fields(request, DecoderRequest)
        try:
            file, record = await self._checked(fields, await self.info.recent())
        except (
            NotLoaded,
            InvalidRequest,
            OtherWeights,
        ):
            # Another version may have been loaded a moment ago.
            file, record = await self._checked(fields, await self.info.recent(MIN_AGE_S))
        etag, content = record["fingerprint"], None
        if not has_file(etag, request):
            content = await asyncio.to_thread(file.open, record)
        cache_control = "no-cache"
        if fields.weights:
            cache_control = f"{'private' if KEY_NAME.get() else 'public'}, {IMMUTABLE}"
        await file_response(content, etag, cache_control)(scope, receive, send)

    async def _checked(
        self, fields: DecoderRequest, info: Info
    ) -> tuple["_DecoderFile", dict[str, Any]]:
        """Return the file of the requested version, and the record of its weights.

        Raises:
            NotLoaded: no version is loaded.
            InvalidRequest: the requested version is not loaded.
            OtherWeights: the loaded weights are not the requested ones, or not those of the file.
        """
        loaded = {entry.version: entry.weights.sha256 for entry in info.loaded}
        if not loaded:
            raise NotLoaded("no version of the model is loaded; retry later")
        same = [version for version, weights in loaded.items() if weights == fields.weights]
        version = fields.model_version or max(same or loaded)
        if version not in loaded:
            raise unknown_version(version)
        expected = loaded[version]
        assert self._repository
        file = _DecoderFile.of_version(self._repository, version)
        record = file.record()  # small, and a thread would take several times as long
        if wrong := {fields.weights or expected, record.get("sha256", "none")} - {expected}:
            raise _other_weights(expected, wrong.pop())
        return file, record

    def _fields(self, request: Request, model: type[Model], **fields: str) -> Model:
        """Return the fields of a request's path and query; raise `UnknownPath` where local
        decoding is off.
        """
        if self._repository is None:
            raise UnknownPath(OFF)
        return parse_body(query_fields(parameters_of(request), model, **fields), model)


@dataclass(frozen=True)
class _DecoderFile:
    """The decoder's file of one version, and the folder with the record of its weights."""

    path: Path
    record_folder: Path

    @classmethod
    def of_version(cls, repository: Path, version: int) -> "_DecoderFile":
        """Return the files of a version, both of one snapshot: the links of the models change
        one after another.
        """
        folder = repository / tensors.DECODER / str(version)
        try:
            snapshot = (folder.parent / folder.readlink()).parent
        except OSError:  # no link
            return cls(folder / FILE, repository / tensors.SEGMENT / str(version))
        return cls(snapshot / tensors.DECODER / FILE, snapshot / tensors.SEGMENT)

    def record(self) -> dict[str, Any]:
        """Return the record of the weights, empty if a file is missing."""
        return read_record(self.record_folder) if self.path.is_file() else {}

    def open(self, record: dict[str, Any]) -> OpenFile:
        """Open the file of a record.

        Raises:
            OtherWeights: by now the file is another one.
        """
        try:
            content = OpenFile(self.path)
        except OSError:  # removed meanwhile
            raise _other_weights(record["sha256"], "none") from None
        # The record is written after the file, and removed before that changes.
        if (now := self.record()) != record:
            raise _other_weights(record["sha256"], now.get("sha256", "none"))
        return content


def _other_weights(expected: str, got: str) -> OtherWeights:
    return OtherWeights(errors=[FieldError("weights", f"{expected}, which are loaded", got)])
