"""Interfaces in the languages of annotation tools.

An adapter is a table of routes. Each route translates a tool's request into fields of `/mobile_sam`, `/embed` or
`/everything`, and the answer into the tool's form. Requests pass the same edge as those of the service's own paths.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.datastructures import Headers, QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from utils.api.answers import json_response, problem_of, problem_response
from utils.api.errors import Problem
from utils.api.everything import everything, result_of
from utils.api.inputs import IMAGE_FILE, ImageSource, decode_base64, to_prompts
from utils.api.jobs import Job, Segmenter
from utils.api.received import parse_body
from utils.api.requests import EverythingRequest, SegmentRequest
from utils.observability.context import CALLER
from utils.settings import Settings

Fields = Mapping[str, Any]
GRID: Fields = {"points_per_side": 16}
"""Parameters of `/everything` for tools: a quarter of its points, so that an answer takes seconds on a CPU."""


class Service:
    """The service's own functions, with their fields and answers as Python objects.

    Methods raise a `ServiceError` for invalid fields, an invalid image or an unavailable model.
    """

    def __init__(self, segmenter: Callable[[], Segmenter], settings: Settings) -> None:
        self._segmenter, self.settings = segmenter, settings

    async def segment(self, image: ImageSource, fields: Fields) -> dict[str, Any]:
        """Return the JSON document of `/mobile_sam`, without a picture, for its fields but the image.

        `mask_format` is `rle`, `polygon`, `png` or `json`.
        """
        request = parse_body(orjson.dumps({"segmented_image": "none", **fields}), SegmentRequest)
        job = Job(to_prompts(request), request, request.model_version, document=True)
        segmentation = await self._segmenter().segment(image, job)
        document: dict[str, Any] = orjson.loads(bytes(segmentation.result))
        return document

    async def embed(self, image: ImageSource) -> dict[str, Any]:
        """Return the answer of `/embed`."""
        document: dict[str, Any] = orjson.loads(await self._segmenter().embed(image))
        return document

    async def everything(self, image: ImageSource, fields: Fields) -> dict[str, Any]:
        """Return the answer of `/everything` for its fields but the image and `progress`."""
        request = parse_body(orjson.dumps(fields), EverythingRequest)
        steps = everything(self._segmenter(), image, request, self.settings.max_answer_bytes)
        document: dict[str, Any] = orjson.loads(await result_of(steps, self.settings.inference_timeout))
        return document


@dataclass(frozen=True)
class Call:
    """A tool's request."""

    body: bytes
    headers: Headers
    query: QueryParams
    service: Service


Answer = Response | dict[str, Any] | list[Any]
"""A response, or what is answered as JSON."""
Handler = Callable[[Call], Awaitable[Answer]]
"""Answers a request; a `ServiceError` that it raises becomes the adapter's error."""


@dataclass(frozen=True)
class Adapter:
    """Routes of one tool."""

    name: str
    """Name in `MOBILE_SAM_INTEGRATIONS`."""
    pages: Mapping[str, Handler | Answer]
    """Handlers or constant answers of GET requests by path. They run no inference, and need no API key unless
    `pages_need_key`."""
    work: Mapping[str, Handler | Answer]
    """The same for POST requests, subject to keys, rates and all limits of `/mobile_sam`."""
    error_response: Callable[[Problem], Response] = problem_response
    """Returns an error in the form that the tool shows to its user."""
    pages_need_key: bool = False
    """True for a tool that asks a page whether its key is right."""


class Adapters:
    """ASGI application of the adapters' paths."""

    def __init__(self, adapters: Iterable[Adapter], service: Service, off: Iterable[Adapter] = ()) -> None:
        self.by_path: dict[str, Adapter] = {}
        self.pages: dict[str, Handler | Answer] = {}
        self.work: dict[str, Handler | Answer] = {}
        self._service = service
        self.off = {path: adapter.name for adapter in off for path in (*adapter.pages, *adapter.work)}
        for adapter in adapters:
            for path in [*adapter.pages, *adapter.work]:
                assert path not in self.by_path, path
                self.by_path[path] = adapter
            self.pages |= adapter.pages
            self.work |= adapter.work
        self.key_pages = frozenset(path for path in self.pages if self.by_path[path].pages_need_key)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; the edge lets only known paths and methods through."""
        path = scope["path"]
        request = Request(scope, receive)
        handler = self.pages[path] if path in self.pages else self.work[path]
        try:
            body = b"".join([chunk async for chunk in request.stream() if chunk])
            answer = handler
            if not isinstance(handler, (Response, dict, list)):
                answer = await handler(Call(body, request.headers, request.query_params, self._service))
            response = answer if isinstance(answer, Response) else json_response(orjson.dumps(answer))
        except Exception as error:
            response = self.error_response(path, problem_of(error))
        await response(scope, receive, send)

    def error_response(self, path: str, problem: Problem) -> Response:
        """Return an error in the form of the path's tool, or as a problem document on other paths."""
        response = problem_response(problem)  # also notes the reason for the metrics
        adapter = self.by_path.get(path)
        return adapter.error_response(problem) if adapter else response


def image_of(text: str, field_name: str) -> ImageSource:
    """Return the image in base64 or a `data:` URL, owned by the caller; errors name the field.

    Raises:
        InvalidRequest: not base64, or empty.
    """
    return ImageSource(decode_base64(text, field_name, IMAGE_FILE), None, CALLER.get())
