"""HTTP answers, and BentoML descriptors of requests and answers."""

import asyncio
import functools
import re
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import bentoml
import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from urllib3.fields import RequestField
from urllib3.filepost import choose_boundary

from orchestrator.flood_log import FloodLog
from utils.api.accept import FILE, JSON, PNG
from utils.api.forms import FORM
from utils.api.requests import MaskFormat
from utils.errors import MEDIA_TYPE, Problem, ServiceError
from utils.inference.contents import Content, chunks
from utils.inference.segmenter import AnswerParts
from utils.observability.context import ADDRESS, REASON, REQUEST_ID, TARGET
from utils.observability.logs import ERROR_LOG, logger

# Only the older of BentoML's two APIs, which this module and `service.py` use, has the Triton
# runner.
warnings.filterwarnings("ignore", ".*is deprecated since BentoML v1.4")

MASK_PARTS: dict[MaskFormat, tuple[str, str | None]] = {
    "json": (JSON, None),
    "npy": (FILE, "mask.npy"),
    "png": (PNG, "mask.png"),
    "rle": (JSON, None),
    "polygon": (JSON, None),
}
"""Content type and file name of the `mask` part, by format."""

ORIENTATION_HEADER = "X-Image-Orientation"
ORIENTATION = re.compile(rb'"orientation": ?([1-8])')
BEGINNING_BYTES = 256
"""Part of a result that has the image's orientation: the result of many masks is not parsed
here."""
JSON_LINES = "application/x-ndjson"
MAX_UNSTREAMED_BYTES = 1_000_000
"""Size up to which an answer is sent in one piece."""
REFUSAL_LOG = FloodLog(logger, max_lines=20, window_s=10)


def segmentation_response(
    segmentation: AnswerParts, mask_format: MaskFormat, answer_type: str
) -> Response:
    """Return masks and picture as multipart, as one JSON document, or as the picture or the mask
    alone.
    """
    # Read first: a part in a file is gone once the last one is sent.
    orientation = _orientation_header(segmentation.result)
    if answer_type == FORM:
        boundary = choose_boundary()
        pieces = multipart_pieces(segmentation, mask_format, boundary)
        response = _sized_response(pieces, f"{FORM}; boundary={boundary}")
    elif answer_type == PNG:
        response = _sized_response([segmentation.picture or segmentation.mask], PNG)
    else:
        response = json_response(segmentation.result)
    response.headers.update(orientation)
    return response


def image_response(result: Content) -> Response:
    """Return an answer about an image in JSON, with the image's orientation as a header too."""
    response = json_response(result)
    response.headers.update(_orientation_header(result))
    return response


def _orientation_header(result: Content) -> dict[str, str]:
    """Return the header with an image's orientation, which is among the first members of a
    result.
    """
    orientation = ORIENTATION.search(result[:BEGINNING_BYTES])
    return {ORIENTATION_HEADER: orientation[1].decode()} if orientation else {}


def multipart_pieces(
    segmentation: AnswerParts, mask_format: MaskFormat, boundary: str
) -> list[Content]:
    """Return a body with the parts `mask`, `segmented_image` if there is one, and `result`, in this
    order.

    It is in pieces because urllib3's `encode_multipart_formdata` would copy large parts several
    times.
    """
    parts = [("mask", segmentation.mask, *MASK_PARTS[mask_format])]
    if segmentation.picture is not None:
        parts.append(("segmented_image", segmentation.picture, PNG, "segmented_image.png"))
    parts.append(("result", segmentation.result, JSON, None))
    pieces: list[Content] = []
    for name, data, content_type, filename in parts:
        part = RequestField(name, b"", filename)
        part.make_multipart(content_type=content_type)
        pieces += [f"--{boundary}\r\n{part.render_headers()}".encode(), data, b"\r\n"]
    return [*pieces, f"--{boundary}--\r\n".encode()]


def _sized_response(pieces: Sequence[Content], media_type: str) -> Response:
    """Return an answer with a Content-Length; large ones are streamed without another copy in
    memory.
    """
    size = sum(map(len, pieces))
    if size <= MAX_UNSTREAMED_BYTES:
        return Response(b"".join(map(bytes, pieces)), media_type=media_type)

    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            for chunk in chunks(piece):
                yield chunk

    return StreamingResponse(body(), media_type=media_type, headers={"Content-Length": str(size)})


def has_file(tag: str, request: Request) -> bool:
    """Return whether the caller has the file with this entity tag (RFC 9110, section 13.1.2)."""
    tags = request.headers.get("if-none-match", "")
    return f'"{tag}"' in tags or tags.strip() == "*"


def file_response(content: Content | None, tag: str, cache_control: str) -> Response:
    """Return a file with its entity tag; None if the caller has it, for a 304."""
    response = Response(status_code=304) if content is None else _sized_response([content], FILE)
    response.headers.update({"ETag": f'"{tag}"', "Cache-Control": cache_control})
    return response


def json_response(document: Content, status: int = 200) -> Response:
    """Return an answer in JSON."""
    response = _sized_response([document], JSON)
    response.status_code = status
    return response


async def json_lines(steps: AsyncIterator[dict[str, Any]]) -> Response:
    """Return a stream of JSON lines. Errors before the first line are raised; later ones become the
    last line.

    The edge sends the last line of a stream that it cancels because the service stops.
    """
    first = await anext(steps)
    headers = {"X-Accel-Buffering": "no"}  # turns off nginx's buffering
    if "orientation" in first:
        headers[ORIENTATION_HEADER] = str(first["orientation"])

    def line_of(step: dict[str, Any]) -> bytes:
        shown = {name: value for name, value in step.items() if name != "orientation"}
        return orjson.dumps(shown, option=orjson.OPT_APPEND_NEWLINE)

    async def lines() -> AsyncIterator[bytes]:
        yield line_of(first)
        try:
            async for step in steps:
                line = await asyncio.to_thread(line_of, step)
                for chunk in chunks(line):
                    yield chunk
        except Exception as error:
            yield problem_line(error)

    return StreamingResponse(lines(), media_type=JSON_LINES, headers=headers)


def problem_line(error: Exception) -> bytes:
    """Return the last line of a stream of JSON lines that an error has ended; the error is
    logged.
    """
    document = {"problem": problem_of(error).as_json()}
    return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)


def problem_of(error: Exception) -> Problem:
    """Log an error, without values that the caller sent, and return its problem document.

    The error loses its traceback: the frames would hold the request's body until the cyclic
    collector runs.
    """
    address, request = ADDRESS.get(), f"{TARGET.get()} (request {REQUEST_ID.get()})"
    if isinstance(error, ServiceError):
        problem = error.problem()
        line = f"{address} {request}: {problem.status} {problem.slug}: {error.logged}"
        REFUSAL_LOG.log(problem.slug, line, address, problem.status)
    else:
        ERROR_LOG.log(
            f"unexpected {type(error).__name__}",
            f"{address} {request}: unexpected error",
            address,
            error=error,
        )
        problem = ServiceError("unexpected error; see the server's log").problem()
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return problem


def problem_response(problem: Problem) -> Response:
    """Return an `application/problem+json` answer, and note its reason for the metrics."""
    if reason := REASON.get(None):
        reason.slug = problem.slug
    return Response(problem.encode(), problem.status, problem.headers, MEDIA_TYPE)


def errors_as_problems(
    api: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Decorate an API function so that its errors become problem documents and one line in the log.

    BentoML itself answers errors with a plain 500 and logs a traceback.
    """

    @functools.wraps(api)
    async def answer(request: Request) -> Response:
        try:
            return await api(request)
        except Exception as error:
            return problem_response(problem_of(error))

    return answer


class _Raw:
    """Mix-in of descriptors that pass on requests and responses as they are.

    The API function reads the request: errors raised in a descriptor do not reach the caller.
    """

    async def from_http_request(self, request: Request) -> Request:
        """Return the request unchanged."""
        return request

    async def to_http_response(self, obj: Response, ctx: Any = None) -> Response:  # noqa: ARG002
        """Return the response unchanged."""
        return obj


class RawMultipart(_Raw, bentoml.io.Multipart):
    """Descriptor of a multipart or other answer made by the API function."""


class RawJson(_Raw, bentoml.io.JSON):
    """Descriptor of a request read by the API function, or of a JSON answer made by it."""
