"""Interfaces in the languages of annotation tools.

An adapter is a table of routes. Each route has the model of a tool's request, and a handler that
translates it into fields of `/mobile_sam`, `/embed` or `/everything`, and the answer into the
tool's form. Requests pass the same edge as requests to the service's own paths.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import Headers, QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from utils.api.answers import json_response, problem_of, problem_response
from utils.api.inputs import IMAGE_FILE, decode_base64
from utils.api.query import parameters_of
from utils.api.request_body import parse_in_steps, receive_json
from utils.errors import Problem
from utils.inference.request import ImageSource
from utils.integrations.advice import in_tools_words
from utils.integrations.service import MaskService, as_json
from utils.observability.context import KEY_NAME

MAX_TEXT_CHARS = 8192
"""Maximum length of a text in a tool's request, images aside."""
ImageText = Annotated[str, Field(max_length=2**30)]
"""An image in base64, which only the size of the body limits."""


class ToolRequest(BaseModel):
    """Base class of the models of tools' requests, nested ones included. Unknown fields are
    ignored.
    """

    model_config = ConfigDict(str_max_length=MAX_TEXT_CHARS, protected_namespaces=())

    @classmethod
    def shortened(cls, body: bytes) -> bytes:
        """Return the body without what the service does not read, for tools that send much of
        it.
        """
        return body


@dataclass(frozen=True)
class ToolCall:
    """The rest of a tool's request."""

    headers: Headers
    query: QueryParams
    service: MaskService


Answer = Response | dict[str, Any] | list[Any]
"""A response, or what is answered as JSON."""
Page = Callable[[ToolCall], Awaitable[Answer]] | Answer
"""A handler of GET requests, or a constant answer."""
Work = tuple[type[ToolRequest], Callable[[ToolCall, Any], Awaitable[Answer]]] | Answer
"""The model of a body and the handler that takes it; or a constant answer, for which no body is
parsed.

A `ServiceError` that a handler raises becomes the adapter's error.
"""
ErrorForm = Callable[[Problem], Response]


@dataclass(frozen=True)
class Adapter:
    """Routes of one tool."""

    name: str
    """Name in `MOBILE_SAM_INTEGRATIONS`."""
    pages: Mapping[str, Page]
    """GET requests by path. They run no inference, and need no API key unless `pages_need_key`."""
    work: Mapping[str, Work]
    """POST requests by path, subject to keys, rates and all limits of `/mobile_sam`."""
    error_response: ErrorForm = problem_response
    """Returns an error in the form that the tool shows to its user."""
    error_responses: Mapping[str, ErrorForm] = field(default_factory=dict)
    """The same for the work of single paths, but not for requests that the edge refuses."""
    pages_need_key: bool = False
    """True for a tool that asks a page whether its key is right."""


class Adapters:
    """ASGI application of the adapters' paths.

    It bounds bodies before a handler sees them: their type, number of values, depth and texts.
    """

    def __init__(
        self, adapters: Collection[Adapter], service: MaskService, off: Collection[Adapter] = ()
    ) -> None:
        self.by_path = {
            path: adapter for adapter in adapters for path in (*adapter.pages, *adapter.work)
        }
        self.pages = {path: page for adapter in adapters for path, page in adapter.pages.items()}
        self.work = {path: work for adapter in adapters for path, work in adapter.work.items()}
        assert len(self.by_path) == sum(
            len(adapter.pages) + len(adapter.work) for adapter in adapters
        )
        self.off = {
            path: adapter.name for adapter in off for path in (*adapter.pages, *adapter.work)
        }
        self._service = service
        self.key_pages = frozenset(path for path in self.pages if self.by_path[path].pages_need_key)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; the edge lets only known paths and methods through."""
        path = scope["path"]
        try:
            answer = await self._answer(path, Request(scope, receive))
            response = answer if isinstance(answer, Response) else json_response(as_json(answer))
        except Exception as error:
            response = self.work_error(path, problem_of(error))
        await response(scope, receive, send)

    async def _answer(self, path: str, request: Request) -> Answer:
        parameters_of(request)
        call = ToolCall(request.headers, request.query_params, self._service)
        if path in self.pages:
            page = self.pages[path]
            return page if isinstance(page, (Response, dict, list)) else await page(call)
        body = await receive_json(request)
        work = self.work[path]
        if not isinstance(work, tuple):
            return work
        model, handler = work
        # In a thread it lets the event loop run between two pieces of the body.
        body = await asyncio.to_thread(model.shortened, body)
        fields = await parse_in_steps(body, model)
        del body
        return await handler(call, fields)

    def work_error(self, path: str, problem: Problem) -> Response:
        """Return an error of a handler, or of the body that it was to get, in the form of the
        path's tool.
        """
        response = self.error_response(path, problem)
        form = self.by_path[path].error_responses.get(path)
        return form(in_tools_words(problem)) if form else response

    def error_response(self, path: str, problem: Problem) -> Response:
        """Return an error in the form of the path's tool, or as a problem document on other
        paths.
        """
        response = problem_response(problem)  # also notes the reason for the metrics
        adapter = self.by_path.get(path)
        return adapter.error_response(in_tools_words(problem)) if adapter else response


def image_of(text: str, field_name: str) -> ImageSource:
    """Return the image in base64 or a `data:` URL, owned by the caller; raise `InvalidRequest`
    that names the field.
    """
    return ImageSource(decode_base64(text, field_name, IMAGE_FILE), None, KEY_NAME.get())
