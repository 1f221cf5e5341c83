"""Segmentation by Triton's models.

The large values of a request travel in a memory file, memfd_create(2), which both sides open by its path in /proc;
`orchestrator.call` is the models' side. The file is closed when the request ends for any reason, which tells the models
that the caller is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
import numpy as np
import numpy.typing as npt
import orjson
from tritonclient.http import InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from utils.api.errors import (
    FieldError,
    ImageNotCached,
    InferenceFailed,
    InferenceTimeout,
    InferenceUnavailable,
    NotLoaded,
    Overloaded,
    Problem,
    RejectedByModel,
    ServiceError,
    summary,
    unknown_version,
)
from utils.api.inputs import ImageSource
from utils.api.jobs import CHUNK_BYTES, Content, GridBatch, Job, Segmentation
from utils.api.received import BYTE_ORDER_MARK, has_more_than
from utils.api.requests import SegmentOptions
from utils.edge.admission import FairSemaphore
from utils.observability import traces
from utils.observability.context import ADDRESS, CALLER, TRACE_ID
from utils.triton import tensors

logger = logging.getLogger("bentoml.mobile_sam")

UNCOMPRESSED = {"Accept-Encoding": "identity"}
"""Request headers. By default the client library accepts gzip, which costs Triton 20 ms per megabyte."""

INLINE_BYTES = 64 * 1024
"""Values up to this size are sent through Triton."""
MAX_BLOCKING_WRITE_BYTES = 1_000_000
"""Larger values are written in a thread; this many bytes take less than a millisecond."""

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


class TritonSegmenter:
    """Segmentation by the orchestrator's models in Triton.

    Methods raise `RejectedByModel` (invalid image or prompt), `InferenceUnavailable` (Triton cannot be reached, or the
    model is not loaded), `InferenceTimeout` or `InferenceFailed`.
    """

    def __init__(
        self,
        infer: Callable[..., Awaitable[Any]],
        timeout: float,
        instances: Mapping[str, int] | None = None,
        report_fault: Callable[[], None] = lambda: None,
    ) -> None:
        """Create a segmenter.

        Args:
            infer: `InferenceServerClient.infer` of `tritonclient.http.aio`, or the runner's method of that name.
            timeout: seconds for one request, including the wait for a slot.
            instances: number of processes per model. Triton gets this many requests and one more at a time; the others
                wait here, where slots are shared fairly between callers and requests of disconnected callers are
                dropped.
            report_fault: called when Triton took a model's process for dead (`utils.triton.health.report_fault`).
        """
        self._infer, self._report_fault = infer, report_fault
        self._timeout = timeout
        self._semaphores = {
            model: FairSemaphore(count + 1, MAX_COSTLY_WAITING if model == tensors.SEGMENT_COSTLY else None)
            for model, count in (instances or {}).items()
        }

    async def embed(self, image: ImageSource, model_version: int | None = None) -> bytes:
        """Encode an image ahead of the first prompt and return the result as JSON."""
        request = await self._request(image, {}, model_version=model_version)
        return bytes((await self._infer_by_cost(request, {}))[tensors.RESULT])

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
            found: list[dict[str, Any]] = orjson.loads(bytes(outputs[tensors.RECORDS]))
        exchange.close()
        return found

    async def _request(
        self,
        image: ImageSource,
        options: Mapping[str, Any],
        fields: Sequence[Sequence[str]] = (),
        model_version: int | None = None,
    ) -> _Request:
        call = {"image_id": await _image_id(image), "owner": image.owner, "caller": _caller(), "options": options}
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
        with service_errors(self._timeout, self._report_fault):
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
                    caller = _caller()
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
    """Image id, owner, caller and options, as the models' input `call` has them."""
    fields: Sequence[Sequence[str]]
    """Request path of each point of each object, for error messages."""
    model_version: int | None
    """None: the newest."""
    exchange: Exchange


class _CostlyRequest(Exception):
    """The model leaves the request to the one for costly requests."""


def _caller() -> str:
    """Return the name of the caller's key, without keys the address."""
    return CALLER.get() or ADDRESS.get()


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


class Exchange:
    """The memory file of a request. As a context manager it is closed on an exception, else by the response's owner."""

    def __init__(self, deadline: float) -> None:
        """Create an empty file; the request's deadline is on the monotonic clock."""
        self._fd = os.memfd_create("mobile_sam")
        self.deadline = deadline
        self._inputs: dict[str, dict[str, Any]] = {}
        self._size = 0

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind:
            self.close()

    def __del__(self) -> None:
        self.close()

    async def put(self, inputs: dict[tensors.Tensor, npt.NDArray[Any]]) -> dict[tensors.Tensor, npt.NDArray[Any]]:
        """Write the large inputs of a model to the file, unless it already has them, and return the others."""
        inline = {}
        for tensor, value in inputs.items():
            plain: Any = value[0] if tensor.datatype == "BYTES" else np.ascontiguousarray(value)
            data = memoryview(plain).cast("B")
            if data.nbytes <= INLINE_BYTES:
                inline[tensor] = value
            elif tensor.name not in self._inputs:
                if data.nbytes <= MAX_BLOCKING_WRITE_BYTES:
                    self._write(data)
                else:
                    await asyncio.to_thread(self._write, data)
                dtype = "bytes" if tensor.datatype == "BYTES" else value.dtype.str
                location = {"offset": self._size, "bytes": data.nbytes, "dtype": dtype, "shape": value.shape}
                self._inputs[tensor.name] = location
                self._size += data.nbytes
        return inline

    def describe(self, call: Mapping[str, Any]) -> npt.NDArray[np.object_]:
        """Return the value of the models' input `call`: the given members, and those about the file."""
        description = {
            **call,
            "file": f"/proc/{os.getpid()}/fd/{self._fd}",
            "inode": os.fstat(self._fd).st_ino,
            "deadline": self.deadline,
            "inputs": self._inputs,
        }
        return np.array([orjson.dumps(description)], np.object_)

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes written by a model."""
        return os.pread(self._fd, size, offset)

    def close(self) -> None:
        """Close the file; further calls do nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _write(self, data: memoryview) -> None:
        written = 0
        while written < data.nbytes:
            written += os.pwrite(self._fd, data[written:], self._size + written)


@dataclass(frozen=True)
class Spooled:
    """A response part in the file of its request."""

    exchange: Exchange
    offset: int
    size: int

    def __len__(self) -> int:
        return self.size

    def __bytes__(self) -> bytes:
        return self.exchange.read(self.offset, self.size)

    def chunks(self) -> Iterator[bytes]:
        """Yield the part in pieces of `CHUNK_BYTES`."""
        for start in range(0, self.size, CHUNK_BYTES):
            yield self.exchange.read(self.offset + start, min(CHUNK_BYTES, self.size - start))


def infer_input(tensor: tensors.Tensor, value: npt.NDArray[Any]) -> InferInput:
    """Return a request input in Triton's binary format."""
    made = InferInput(tensor.name, list(value.shape), tensor.datatype)
    made.set_data_from_numpy(value, binary_data=True)
    return made


@contextlib.contextmanager
def service_errors(timeout: float, report_fault: Callable[[], None]) -> Iterator[None]:
    """Translate the exceptions of a Triton call to `ServiceError`s.

    Triton's message is only logged, because it can contain paths and addresses.

    Raises:
        InferenceUnavailable: Triton cannot be reached, or the model is not loaded.
        InferenceTimeout: no response before the timeout.
        InferenceFailed: any other error of Triton or the model.
    """
    try:
        yield
    except asyncio.TimeoutError:
        logger.error("Triton did not respond within %g s", timeout)
        raise InferenceTimeout(f"no response within {timeout:g} s") from None
    except (aiohttp.ClientError, OSError) as error:
        logger.error("Triton cannot be reached: %s", error)
        raise InferenceUnavailable("the inference server is starting or restarting; retry later") from None
    except InferenceServerException as error:
        raise _from_triton(error, report_fault) from None


def _from_triton(error: InferenceServerException, report_fault: Callable[[], None]) -> ServiceError:
    message = str(error.message())
    logger.error("Triton responded with status %s: %s", error.status(), message)
    if message.startswith("Request for unknown model"):
        return NotLoaded("the model is not loaded; retry later")
    if message.startswith("request cancelled"):  # the orchestrator found that the deadline had passed
        return InferenceTimeout("no response before the deadline")
    text = message.lower()
    if "request for unknown model" in text:
        return InferenceUnavailable("a model that this model depends on is not loaded; retry later")
    if "stub process" in text:
        report_fault()
        return InferenceUnavailable("a process of the model died and is being restarted; retry later")
    if "not ready" in text:
        return InferenceUnavailable("the model is loading; retry later")
    if "shared memory" in text:
        return InferenceUnavailable("the server has too little shared memory for an image of this size")
    return InferenceFailed("the model could not process this request; see the server's log")
