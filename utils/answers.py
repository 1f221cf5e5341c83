"""The multipart answer, and the descriptors that put it and the request into BentoML's API and OpenAPI."""

from __future__ import annotations

import asyncio
import functools
import logging
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import bentoml
import orjson
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from urllib3.fields import RequestField
from urllib3.filepost import choose_boundary

from utils.edge.callers import ADDRESS, REQUEST_ID, TARGET
from utils.edge.floods import FloodLog
from utils.errors import MEDIA_TYPE, Problem, ServiceError, UnsupportedMedia
from utils.exchange import Content, as_bytes, chunks
from utils.schemas import MaskFormat
from utils.segmenter import Segmentation

logger = logging.getLogger("bentoml.mobile_sam")

# Of BentoML's two APIs only the older one, which this and `service.py` extend, has the Triton runner.
warnings.filterwarnings("ignore", ".*is deprecated since BentoML v1.4")

MASK_PARTS: dict[MaskFormat, tuple[str, str | None]] = {
    "json": ("application/json", None),
    "npy": ("application/octet-stream", "mask.npy"),
    "png": ("image/png", "mask.png"),
    "rle": ("application/json", None),
    "polygon": ("application/json", None),
}
"""Content type and file name of the `mask` part, by format."""

PROBLEM_HEADER = "X-Problem"
"""Tells the edge, which counts answers by it and takes it away, what the problem is."""
SENT_AT_ONCE = 1_000_000
"""Bytes of an answer which need not wait for their reader."""
REFUSALS = FloodLog(logger, at_most=20, seconds=10)


def multipart(segmentation: Segmentation, mask_format: MaskFormat) -> Response:
    """The answer: `mask`, `segmented_image` where there is one, `result`, in this order."""
    mask_type, mask_file = MASK_PARTS[mask_format]
    parts = [_part("mask", segmentation.mask, mask_type, mask_file)]
    if segmentation.picture is not None:
        parts.append(_part("segmented_image", segmentation.picture, "image/png", "segmented_image.png"))
    parts.append(_part("result", segmentation.result, "application/json", None))
    boundary = choose_boundary()
    return sized(_multipart_body(parts, boundary.encode()), f"multipart/form-data; boundary={boundary}")


def _multipart_body(parts: list[tuple[bytes, Content]], boundary: bytes) -> list[Content]:
    """In pieces what urllib3's `encode_multipart_formdata` makes, which copies a part's megabytes several times.

    Args:
        parts: headers and data of each.
        boundary: which none of them holds.
    """
    pieces = [(b"--" + boundary + b"\r\n" + headers, data, b"\r\n") for headers, data in parts]
    return [*(piece for part in pieces for piece in part), b"--" + boundary + b"--\r\n"]


def sized(pieces: Sequence[Content], media_type: str) -> Response:
    """An answer of known length; a large one is sent as its reader takes it, and lies in memory once."""
    size = sum(map(len, pieces))
    if size <= SENT_AT_ONCE:
        return Response(b"".join(map(as_bytes, pieces)), media_type=media_type)

    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            for chunk in chunks(piece):
                yield chunk

    return StreamingResponse(body(), media_type=media_type, headers={"Content-Length": str(size)})


def _part(name: str, data: Content, content_type: str, filename: str | None) -> tuple[bytes, Content]:
    """A part's headers and data."""
    part = RequestField(name, b"", filename)
    part.make_multipart(content_type=content_type)
    return part.render_headers().encode(), data


def json_response(document: bytes) -> Response:
    """An answer in JSON."""
    return sized([document], "application/json")


async def json_lines(steps: AsyncIterator[dict[str, Any]]) -> Response:
    """An answer that comes line by line; what goes wrong before the first line is raised, later it is the last line."""
    first = await anext(steps)

    async def lines() -> AsyncIterator[bytes]:
        yield orjson.dumps(first, option=orjson.OPT_APPEND_NEWLINE)
        try:
            async for step in steps:
                line = await asyncio.to_thread(orjson.dumps, step, option=orjson.OPT_APPEND_NEWLINE)
                for chunk in chunks(line):
                    yield chunk
        except Exception as error:
            document = {"problem": problem_of(error).as_json()}
            yield orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)

    # nginx would keep the lines until it has many of them.
    return StreamingResponse(lines(), media_type="application/x-ndjson", headers={"X-Accel-Buffering": "no"})


def problem_of(error: Exception) -> Problem:
    """The problem document that tells a caller of an error; the log gets it without the values that came."""
    if isinstance(error, ServiceError):
        problem = error.problem()
        address, asked = ADDRESS.get(), f"{TARGET.get()} (request {REQUEST_ID.get()})"
        REFUSALS.log(problem.slug, f"{address} {asked}: {problem.status} {problem.slug}: {error.logged}", address)
        return problem
    logger.error("%s %s (request %s): unexpected error", ADDRESS.get(), TARGET.get(), REQUEST_ID.get(), exc_info=error)
    return ServiceError("an unexpected error; the server's log says more").problem()


def problem_response(problem: Problem) -> Response:
    """An `application/problem+json` answer."""
    return Response(problem.encode(), problem.status, {**problem.headers, PROBLEM_HEADER: problem.slug}, MEDIA_TYPE)


def answers_problems(api: Callable[[bytes], Awaitable[Response]]) -> Callable[[Any], Awaitable[Response]]:
    """Let an API function raise: a `ServiceError` becomes its problem document and one line in the log.

    BentoML itself turns what an API function raises into a plain 500 and a traceback.
    """

    @functools.wraps(api)
    async def answer(body: bytes | ServiceError) -> Response:
        try:
            if isinstance(body, ServiceError):
                raise body
            return await api(body)
        except Exception as error:
            return problem_response(problem_of(error))

    return answer


class JsonBody(bentoml.io.JSON):
    """A JSON request body, handed to the API function as bytes; the model is what OpenAPI shows.

    Parsing is the API function's: what goes wrong in a descriptor cannot be told to the caller.
    """

    def __init__(self, model: type[BaseModel], example: dict[str, Any]) -> None:
        super().__init__(pydantic_model=model)
        self._example = example

    def openapi_example(self) -> dict[str, Any]:
        """The example that the Swagger page sends when a person presses Execute."""
        return self._example

    async def from_http_request(self, request: Request) -> bytes | ServiceError:
        """The body, or why it is not taken."""
        content_type = request.headers.get("content-type", "application/json").split(";")[0].strip().lower()
        if content_type != "application/json" and not content_type.endswith("+json"):
            return UnsupportedMedia.of(content_type)
        # Not `request.body()`, which would keep it for as long as the request lasts. Of one chunk no copy is made.
        return b"".join([chunk async for chunk in request.stream() if chunk])


class Answer(bentoml.io.Multipart):
    """A multipart answer that the API function has made already; the parts are what OpenAPI shows."""

    def openapi_responses(self) -> Any:
        """The 200 answer of the API."""
        responses = super().openapi_responses()
        responses["description"] = "the parts `mask`, `segmented_image` (left out for `none`) and `result`"
        return responses

    async def to_http_response(self, obj: Response, ctx: Any = None) -> Response:  # noqa: ARG002
        """The response as it is."""
        return obj


class JsonAnswer(bentoml.io.JSON):
    """A JSON answer that the API function has made already."""

    async def to_http_response(self, obj: Response, ctx: Any = None) -> Response:  # noqa: ARG002
        """The response as it is."""
        return obj
