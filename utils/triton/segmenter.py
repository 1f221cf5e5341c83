"""Segmentation by Triton's models, behind a protocol that tests can implement without Triton."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import orjson
from tritonclient.http import InferRequestedOutput

from utils.api.errors import (
    FieldError,
    ImageNotCached,
    InvalidRequest,
    NotLoaded,
    Overloaded,
    Problem,
    RejectedByModel,
    invalid,
    summary,
)
from utils.api.inputs import ImageSource, Prompts
from utils.api.received import BYTE_ORDER_MARK, has_more_than
from utils.api.requests import SegmentOptions
from utils.edge.admission import FairSemaphore
from utils.observability import traces
from utils.observability.context import ADDRESS, CALLER, TRACE_ID
from utils.triton import tensors
from utils.triton.exchange import UNCOMPRESSED, Content, Exchange, Spooled, as_bytes, infer_input, service_errors

MIN_COSTLY_OBJECTS = 13
"""A request with this many objects is costly on any image, and is sent to the costly model at once."""
MAX_COSTLY_WAITING = 8
"""Maximum number of costly requests waiting in one API worker, so that clicks keep their slots."""
FULL_QUEUE_WAIT_S = 1.0
"""Time a costly request waits for room in a full queue before it is rejected."""
JSON_MARGIN = b" \t\r\n" + BYTE_ORDER_MARK
"""Bytes that may come before a JSON object."""
POINT = re.compile(r"points\[(\d+)\]\[(\d+)\]")
"""Field name of a point in the orchestrator's problems."""
MAX_BLOCKING_HASH_BYTES = 1_000_000
"""Larger files are hashed in a thread; this many bytes take a millisecond."""

_Arrays = dict[tensors.Tensor, npt.NDArray[Any]]
_Contents = dict[tensors.Tensor, Content]


@dataclass(frozen=True)
class Job:
    """The objects to segment, and the format of the response."""

    prompts: Prompts
    options: SegmentOptions
    model_version: int | None = None
    """None: the newest loaded version."""
    document: bool = False
    """Whether the result contains masks and picture."""


@dataclass(frozen=True)
class Segmentation:
    """The contents of the response parts; in a document, `result` alone."""

    mask: Content
    picture: Content | None
    """A PNG file, or None if not requested."""
    result: Content
    """JSON."""


@dataclass(frozen=True)
class GridBatch:
    """Grid points on a crop of an image, and the thresholds for their masks."""

    points_xy: npt.NDArray[np.float32]
    """(N, 2) float32, x then y, pixels of the image."""
    options: Mapping[str, Any]
    """`crop_box` (x0, y0, x1, y1 in pixels of the image) and the thresholds, as config.pbtxt describes them."""
    model_version: int
    """The version that encoded the image."""


class Segmenter(Protocol):
    """Interface for image segmentation. Methods raise a `ServiceError` for invalid input or an unavailable model."""

    async def embed(self, image: ImageSource, model_version: int | None = None) -> bytes:
        """Encode an image ahead of the first prompt and return the result as JSON."""

    def check_room(self, body: bytes) -> None:
        """Reject a segmentation request before it is parsed if it would be refused later."""

    async def segment(self, image: ImageSource, job: Job) -> Segmentation:
        """Segment objects in an image."""

    async def records(self, image: ImageSource, batch: GridBatch) -> list[dict[str, Any]]:
        """Return the automatic masks of a batch that reach the thresholds."""


class TritonSegmenter:
    """Segmentation by the orchestrator's models in Triton.

    Methods raise `RejectedByModel` (invalid image or prompt), `InferenceUnavailable` (Triton cannot be reached, or the
    model is not loaded), `InferenceTimeout` or `InferenceFailed`.
    """

    def __init__(
        self, infer: Callable[..., Awaitable[Any]], timeout: float, instances: Mapping[str, int] | None = None
    ) -> None:
        """Create a segmenter.

        Args:
            infer: `InferenceServerClient.infer` of `tritonclient.http.aio`, or the runner's method of that name.
            timeout: seconds for one request, including the wait for a slot.
            instances: number of processes per model. Triton gets this many requests and one more at a time; the others
                wait here, where slots are shared fairly between callers and requests of disconnected callers are
                dropped.
        """
        self._infer = infer
        self._timeout = timeout
        self._semaphores = {
            model: FairSemaphore(count + 1, MAX_COSTLY_WAITING if model == tensors.SEGMENT_COSTLY else None)
            for model, count in (instances or {}).items()
        }

    async def embed(self, image: ImageSource, model_version: int | None = None) -> bytes:
        """Encode an image ahead of the first prompt and return the result as JSON."""
        request = await self._request(image, {}, model_version=model_version)
        return as_bytes((await self._infer_by_cost(request, {}))[tensors.RESULT])

    def check_room(self, body: bytes) -> None:
        """Reject a costly segmentation request before it is parsed if the costly queue is full.

        The braces of a JSON body are counted as objects; base64 images have none.

        Raises:
            Overloaded: the request is costly, and the queue is full.
        """
        semaphore = self._semaphores.get(tensors.SEGMENT_COSTLY)
        try:
            if semaphore:
                semaphore.check()
        except Overloaded:
            if body[:100].lstrip(JSON_MARGIN).startswith(b"{") and has_more_than(MIN_COSTLY_OBJECTS, b"{", body):
                raise

    async def segment(self, image: ImageSource, job: Job) -> Segmentation:
        """Segment objects in an image."""
        request = await self._request(image, job_options(job), job.prompts.fields, job.model_version)
        outputs = await self._infer_by_cost(request, job_inputs(job))
        return Segmentation(outputs[tensors.MASK], outputs[tensors.PICTURE] or None, outputs[tensors.RESULT])

    async def records(self, image: ImageSource, batch: GridBatch) -> list[dict[str, Any]]:
        """Return the automatic masks of a batch that reach the thresholds."""
        inputs: _Arrays = {tensors.GRID_COORDS: batch.points_xy}
        request = await self._request(image, batch.options, model_version=batch.model_version)
        with request.exchange as exchange:
            try:
                outputs = await self._run(request, tensors.EVERYTHING, inputs)
            except ImageNotCached:  # no longer
                if image.file is None:
                    raise
                outputs = await self._run(request, tensors.EVERYTHING, inputs | image_file(image))
            found: list[dict[str, Any]] = orjson.loads(as_bytes(outputs[tensors.RECORDS]))
        exchange.close()
        return found

    async def _request(
        self,
        image: ImageSource,
        options: Mapping[str, Any],
        fields: Sequence[Sequence[str]] = (),
        model_version: int | None = None,
    ) -> _Request:
        call = {"image_id": await _image_id(image), "owner": image.owner, "options": options}
        return _Request(image, call, fields, model_version, Exchange(time.monotonic() + self._timeout))

    async def _infer_by_cost(self, request: _Request, inputs: _Arrays) -> _Contents:
        """Run the first model that accepts the request: for cached images, for any image, for costly requests.

        The first one gets only the image id, even if the request has a file, and is never busy with encoding.
        """
        with_file = inputs | image_file(request.image)
        with request.exchange:
            try:
                if len(request.fields) < MIN_COSTLY_OBJECTS:
                    with contextlib.suppress(_CostlyRequest):
                        try:
                            return await self._run(request, tensors.SEGMENT_CACHED, inputs)
                        except ImageNotCached:
                            return await self._run(request, tensors.SEGMENT, with_file)
                return await self._run(request, tensors.SEGMENT_COSTLY, with_file)
            except NotLoaded:
                if request.model_version is None:
                    raise
                raise unknown_version(request.model_version) from None

    async def _run(self, request: _Request, model: str, inputs: _Arrays) -> _Contents:
        """Run a model; return its outputs, inline or in the request's file, which is closed if it has none.

        Raises:
            ImageNotCached: the model does not know the image.
            _CostlyRequest: the request is for another model.
        """
        exchange = request.exchange
        with service_errors(self._timeout):
            result = await asyncio.wait_for(
                self._run_in_slot(request, model, inputs), exchange.deadline - time.monotonic()
            )
        outcome = orjson.loads(result.as_numpy(tensors.OUTCOME.name)[0])
        if problem := outcome.get("problem"):
            raise RejectedByModel(_problem(problem, request.image, request.fields))
        if not outcome.get("known", True):
            raise ImageNotCached.of(request.call["image_id"])
        if outcome.get("costly"):
            raise _CostlyRequest
        contents: _Contents = {}
        offset = 0
        for tensor, size in zip(tensors.MODELS[model][1][:-1], outcome["spooled"], strict=True):
            contents[tensor] = Spooled(exchange, offset, size) if size else result.as_numpy(tensor.name)[0]
            offset += size
        if not offset:
            exchange.close()
        return contents

    async def _run_in_slot(self, request: _Request, model: str, inputs: _Arrays) -> Any:
        async with contextlib.AsyncExitStack() as slot:
            traced = bool(TRACE_ID.get())
            with traces.wait_span(model) if traced else contextlib.nullcontext():
                semaphore = self._semaphores.get(model)
                if semaphore:
                    caller = CALLER.get() or ADDRESS.get()
                    try:
                        await slot.enter_async_context(semaphore.slot(caller))
                    except Overloaded:
                        # The request is already parsed and decoded; an immediate retry would repeat that work.
                        await asyncio.sleep(FULL_QUEUE_WAIT_S)
                        await slot.enter_async_context(semaphore.slot(caller))
            exchange, light = request.exchange, model in (tensors.SEGMENT_CACHED, tensors.SEGMENT)
            values = {**await exchange.put(inputs), tensors.CALL: exchange.describe({**request.call, "light": light})}
            infer_span: contextlib.AbstractContextManager[Mapping[str, str]]
            infer_span = traces.infer_span(model) if traced else contextlib.nullcontext({})
            with infer_span as trace_headers:
                return await self._infer(
                    model_name=model,
                    model_version=str(request.model_version or ""),
                    inputs=[infer_input(tensor, value) for tensor, value in values.items()],
                    outputs=[InferRequestedOutput(each.name, binary_data=True) for each in tensors.MODELS[model][1]],
                    headers={**UNCOMPRESSED, **trace_headers},
                )


@dataclass(frozen=True)
class _Request:
    image: ImageSource
    call: Mapping[str, Any]
    """Image id, owner and options, as the models' input `call` has them."""
    fields: Sequence[Sequence[str]]
    """Request path of each point of each object, for error messages."""
    model_version: int | None
    """None: the newest."""
    exchange: Exchange


class _CostlyRequest(Exception):
    """The model leaves the request to the one for costly requests."""


def unknown_version(model_version: int) -> InvalidRequest:
    """Return the error for a requested version that is not loaded."""
    return invalid("model_version", "a loaded version; GET /info lists them", str(model_version))


async def _image_id(image: ImageSource) -> str:
    if image.image_id is not None or image.file is None:
        return image.image_id or ""
    if len(image.file) <= MAX_BLOCKING_HASH_BYTES:
        return hashlib.sha256(image.file).hexdigest()
    return (await asyncio.to_thread(hashlib.sha256, image.file)).hexdigest()


def job_options(job: Job) -> dict[str, Any]:
    """Return the options of a job by the names of the HTTP API's fields."""
    return {**job.options.model_dump(include=set(SegmentOptions.model_fields)), "document": job.document}


def job_inputs(job: Job) -> _Arrays:
    """Return the input tensors with the prompts of a job."""
    prompts = job.prompts
    inputs: _Arrays = {
        tensors.POINT_COORDS: prompts.points_xy,
        tensors.POINT_LABELS: prompts.labels,
    }
    if len(prompts.masks):
        inputs |= {tensors.MASK_INPUT: prompts.masks, tensors.MASK_INPUT_OBJECT: prompts.mask_objects}
    return inputs


def image_file(image: ImageSource) -> _Arrays:
    """Return the input tensor with the image file, if the request has one."""
    return {} if image.file is None else {tensors.INPUT_IMAGE: np.array([image.file], np.object_)}


def _problem(problem: Mapping[str, Any], image: ImageSource, fields: Sequence[Sequence[str]]) -> Problem:
    """Return a problem of the orchestrator, with the image and points named by their request paths."""
    errors = [FieldError(_field(e["field"], image, fields), e["expected"], e["got"]) for e in problem["errors"]]
    return Problem(problem["status"], problem["slug"], problem["title"], summary(errors), errors)


def _field(name: str, image: ImageSource, fields: Sequence[Sequence[str]]) -> str:
    """Return the request path of the image or of `points[object][index]`; other names are returned unchanged."""
    if name == tensors.INPUT_IMAGE.name:
        return image.field
    point = POINT.fullmatch(name)
    return fields[int(point[1])][int(point[2])] if point else name
