"""Segmentation by Triton's models: which of them a request goes to, and what their outcomes mean
to the caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp
import numpy as np
import numpy.typing as npt
import orjson
from tritonclient.http import InferRequestedOutput
from tritonclient.utils import InferenceServerException

from orchestrator import tensors
from orchestrator.call import Call, MemoryFile, Outcome, input_bytes
from orchestrator.costs import MIN_COSTLY_OBJECTS
from utils.errors import (
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
    invalid,
    summary,
    unknown_version,
)
from utils.inference.contents import Content, Spooled
from utils.inference.known_images import KnownImages
from utils.inference.request import ImageSource, InferenceRequest
from utils.inference.segmenter import AnswerParts
from utils.inference.shares import Turns
from utils.observability import traces
from utils.observability.context import ADDRESS, IMAGE_ID, RECORD, TRACE_ID, caller
from utils.observability.logs import ERROR_LOG
from utils.triton import health
from utils.triton.inputs import infer_input

UNCOMPRESSED = {"Accept-Encoding": "identity"}
"""Request headers. By default the client library accepts gzip, which costs Triton 20 ms per
megabyte."""

MAX_BLOCKING_BYTES = 1_000_000
"""More are hashed or written in a thread; this many take a millisecond."""

MAX_COSTLY_WAITING = 8
"""Maximum number of costly requests waiting in one API worker, so that clicks keep their slots."""
FULL_QUEUE_WAIT_S = 1.0
"""Time a request waits for room in a full queue before it is rejected."""
IMAGE_ID_PATTERN = re.compile("[0-9a-f]{64}")
"""An image id that the log may have: callers can send any text."""
PROMPT = re.compile(r"points\[(\d+)\]\[(\d+)\]|masks\[(\d+)\]")
"""Field name of a point or an earlier mask in the orchestrator's problems."""

UNAVAILABLE = {
    "request for unknown model": "a model that this model depends on is not loaded; retry later",
    "stub process": "a process of the model died and is being restarted; retry later",
    "not ready": "the model is loading; retry later",
    "shared memory": "the server has too little shared memory for an image of this size",
}
"""Details for callers, by parts of Triton's messages."""

MEMORY_REMEDY = (
    "too little free memory for a network: fewer MOBILE_SAM_ENCODERS or MOBILE_SAM_ORCHESTRATORS"
    " leave more, and a smaller MOBILE_SAM_MAX_IMAGE_PIXELS needs less"
)

_Inputs = Mapping[str, npt.NDArray[Any]]
"""Inputs of a model by name."""
_Outputs = dict[tensors.Tensor, Content]


@dataclass(frozen=True)
class _Attempt:
    """One run of a model for a request."""

    model: str
    with_file: bool
    """Whether the model gets the image's file, if the request has one, and not the id alone."""

    def after(self, outcome: Outcome, *, has_file: bool) -> _Attempt | None:
        """Return the attempt after one without an answer; None if no model knows the image."""
        if outcome.costly:
            return _Attempt(tensors.SEGMENT_COSTLY, with_file=True)
        if self.model == tensors.SEGMENT_CACHED:
            return _Attempt(tensors.SEGMENT, with_file=True)
        if has_file and not self.with_file:
            return _Attempt(self.model, with_file=True)
        return None


@dataclass(eq=False)
class TritonSegmenter:
    """Segmentation by the orchestrator's models in Triton.

    Methods raise `RejectedByModel` (invalid image or prompt), `InferenceUnavailable` (Triton cannot
    be reached, or the model is not loaded), `InferenceTimeout` or `InferenceFailed`.
    """

    infer: Callable[..., Awaitable[Any]]
    """`InferenceServerClient.infer` of `tritonclient.http.aio`, or the runner's method of that
    name."""
    timeout_s: Callable[[], float]
    """Returns the seconds for one request, including the wait for a slot."""
    instances: Mapping[str, int] = field(default_factory=dict)
    """Number of processes per model. Triton gets this many requests and one more at a time; the
    others wait here, where slots are shared fairly between callers and requests of disconnected
    callers are dropped."""
    report_fault: Callable[[], None] = lambda: None
    """Called when Triton took a model's process for dead (`utils.triton.health.report_fault`)."""
    waiting: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    """Context of requests for whose answers callers wait."""
    batch_points: int = 16
    """Points in a batch of automatic masks."""
    max_new_images: int | None = None
    """Maximum number of new images that wait for the encoder in one API worker: each must be
    answered in time."""
    known_images: KnownImages = field(default_factory=lambda: KnownImages(None))
    """Images that the model for known ones is asked for, even if the request has a file."""

    def __post_init__(self) -> None:
        rooms = {
            tensors.SEGMENT: (self.max_new_images, "new images"),
            tensors.SEGMENT_COSTLY: (MAX_COSTLY_WAITING, "costly requests"),
        }
        self._turns = {}
        for model, count in self.instances.items():
            max_waiting, name = rooms.get(model, (None, "requests"))
            self._turns[model] = Turns(count + 1, max_waiting, name=name)
        self.parallel_batches = self.instances.get(tensors.EVERYTHING, 1)

    async def embed(
        self, image: ImageSource, model_version: int | None = None, *, background: bool = False
    ) -> bytes:
        """Encode an image ahead of the first prompt and return the result as JSON, as
        `Segmenter.embed`.
        """
        request = InferenceRequest(
            {}, {"encode": not (background and image.file)}, model_version, background=background
        )
        outputs = await self._outputs(
            tensors.SEGMENT if background else tensors.SEGMENT_CACHED, image, request
        )
        return bytes(outputs[tensors.RESULT])

    def check_costly_room(self) -> None:
        """Check that another costly request of the caller may wait.

        Raises:
            Overloaded: too many wait.
        """
        turns = self._turns.get(tensors.SEGMENT_COSTLY)
        if turns:
            turns.check(caller())

    async def segment(self, image: ImageSource, request: InferenceRequest) -> AnswerParts:
        """Segment objects in an image."""
        is_costly = request.objects >= MIN_COSTLY_OBJECTS
        model = tensors.SEGMENT_COSTLY if is_costly else tensors.SEGMENT_CACHED
        outputs = await self._outputs(model, image, request)
        return AnswerParts(
            outputs[tensors.MASK], outputs[tensors.PICTURE] or None, outputs[tensors.RESULT]
        )

    async def records(self, image: ImageSource, batch: InferenceRequest) -> dict[str, Any]:
        """Return `masks`, the automatic masks of a batch that reach the thresholds, and the
        `engine`.
        """
        outputs = await self._outputs(tensors.EVERYTHING, image, batch)
        answer: dict[str, Any] = orjson.loads(bytes(outputs[tensors.RECORDS]))
        return answer

    async def _outputs(self, model: str, image: ImageSource, request: InferenceRequest) -> _Outputs:
        """Run a model, and the one that it leaves the request to; return its outputs.

        Args:
            model: first model.
            image: the image.
            request: what the model does with it.

        Raises:
            ImageNotCached: no model knows the image, and the request has no file.
            RejectedByModel: the caller must correct the request.
            InvalidRequest: the header `X-Image-Id` names another image, or the requested version is
                not loaded.
            ServiceError: as raised by `service_errors`.
        """
        image_id = await image_id_of(image)
        if not request.background:  # otherwise the whole list has been checked
            check_image_id(image_id)
        record = None if request.background else RECORD.get()
        if record and IMAGE_ID_PATTERN.fullmatch(image_id):
            record.image_id = image_id
        call = Call(
            image_id=image_id,
            owner=image.owner,
            caller=caller(),
            region=image.region,
            scale_down=image.scale_down,
            options=request.options,
        )
        attempt = self._first_attempt(model, image, image_id, request)
        waiting = contextlib.nullcontext() if request.background else self.waiting()
        with waiting, MemoryFile(time.monotonic() + self.timeout_s()) as memory_file:
            while True:
                inputs = request.inputs
                if attempt.with_file:
                    inputs = {**inputs, **image_file(image)}
                call = replace(call, accepts_costly=attempt.model == tensors.SEGMENT_COSTLY)
                result = await self._run(attempt.model, request, memory_file, inputs, call)
                outcome = Outcome(**orjson.loads(result.as_numpy(tensors.OUTCOME.name)[0]))
                if record and outcome.weights:
                    record.weights = outcome.weights
                if outcome.problem is not None:
                    raise RejectedByModel(_problem(outcome.problem, image, request.point_paths))
                if not (outcome.costly or outcome.unknown_image):
                    self.known_images.add(image.owner, image_id)
                    return _contents(result, attempt.model, memory_file, outcome.spooled)
                next_attempt = attempt.after(outcome, has_file=image.file is not None)
                if next_attempt is None:
                    raise ImageNotCached(image_id)
                attempt = next_attempt

    def _first_attempt(
        self, model: str, image: ImageSource, image_id: str, request: InferenceRequest
    ) -> _Attempt:
        """Return the first run of a request.

        Known images are first asked for by their id, even if the request has a file: the model for
        cached ones is never busy with encoding. A new file goes to the model that encodes it.
        """
        is_new = image.file is not None and not self.known_images.has(image.owner, image_id)
        if is_new and model == tensors.SEGMENT_CACHED:
            model = tensors.SEGMENT
        with_file = is_new or request.background or model == tensors.SEGMENT_COSTLY
        return _Attempt(model, with_file=with_file)

    async def _run(
        self,
        model: str,
        request: InferenceRequest,
        memory_file: MemoryFile,
        inputs: _Inputs,
        call: Call,
    ) -> Any:
        """Run a model and return Triton's result."""
        try:
            with service_errors(self.timeout_s, self.report_fault):
                left_s = memory_file.deadline - time.monotonic()
                running = self._run_in_slot(model, request, memory_file, inputs, call)
                return await asyncio.wait_for(running, left_s)
        except NotLoaded:
            if request.model_version is None or model == tensors.EVERYTHING:
                raise
            raise unknown_version(request.model_version) from None

    async def _run_in_slot(
        self,
        model: str,
        request: InferenceRequest,
        memory_file: MemoryFile,
        inputs: _Inputs,
        call: Call,
    ) -> Any:
        async with self._slot(model, background=request.background):
            if sum(map(input_bytes, inputs.values())) <= MAX_BLOCKING_BYTES:
                values = memory_file.put(inputs)
            else:
                values = await asyncio.to_thread(memory_file.put, inputs)
            values[tensors.CALL.name] = memory_file.describe(call)
            _, outputs = tensors.MODELS[model]
            infer_span: contextlib.AbstractContextManager[Mapping[str, str]]
            infer_span = traces.infer_span(model) if TRACE_ID.get() else contextlib.nullcontext({})
            with infer_span as trace_headers:
                return await self.infer(
                    model_name=model,
                    model_version=str(request.model_version or ""),
                    inputs=[infer_input(name, value) for name, value in values.items()],
                    outputs=[
                        InferRequestedOutput(output.name, binary_data=True) for output in outputs
                    ],
                    headers={**UNCOMPRESSED, **trace_headers},
                )

    @contextlib.asynccontextmanager
    async def _slot(self, model: str, *, background: bool) -> AsyncIterator[None]:
        """Wait for one of a model's slots, and hold it; work in the background needs none."""
        async with contextlib.AsyncExitStack() as slot:
            with traces.wait_span(model) if TRACE_ID.get() else contextlib.nullcontext():
                turns = self._turns.get(model)
                if turns and not background:
                    try:
                        await slot.enter_async_context(turns.place(caller()))
                    except Overloaded:
                        # The request is already parsed and decoded; an immediate retry would repeat
                        # that work.
                        await asyncio.sleep(FULL_QUEUE_WAIT_S)
                        await slot.enter_async_context(turns.place(caller()))
            yield


def _contents(result: Any, model: str, memory_file: MemoryFile, sizes: Sequence[int]) -> _Outputs:
    """Return the outputs of a model; those with a size are in the request's file."""
    contents: _Outputs = {}
    offset = 0
    for tensor, size in zip(tensors.MODELS[model][1][:-1], sizes, strict=True):
        contents[tensor] = (
            Spooled(memory_file, offset, size) if size else result.as_numpy(tensor.name)[0]
        )
        offset += size
    return contents


async def image_id_of(image: ImageSource) -> str:
    """Return the SHA-256 of an image's file, in hexadecimal, or the id that the caller sent."""
    if image.image_id is not None or image.file is None:
        return image.image_id or ""
    if len(image.file) <= MAX_BLOCKING_BYTES:
        return hashlib.sha256(image.file).hexdigest()
    return (await asyncio.to_thread(hashlib.sha256, image.file)).hexdigest()


def check_image_id(*image_ids: str) -> None:
    """Raise `InvalidRequest` if the header `X-Image-Id` names none of a request's images: a
    proxy routed by it.
    """
    got = IMAGE_ID.get()
    if got and got not in image_ids:
        image = "one of the images, such as" if len(image_ids) > 1 else "the image,"
        raise invalid("X-Image-Id", f"the SHA-256 of {image} {image_ids[0]}", got)


def image_file(image: ImageSource) -> _Inputs:
    """Return the input tensor with the image file, if the request has one."""
    return (
        {} if image.file is None else {tensors.INPUT_IMAGE.name: np.array([image.file], np.object_)}
    )


def _problem(
    problem: Mapping[str, Any], image: ImageSource, point_paths: Sequence[Sequence[str]]
) -> Problem:
    """Return a problem of the orchestrator, with the image and points named by their request
    paths.
    """
    errors = [
        FieldError(_field(error["field"], image, point_paths), error["expected"], error["got"])
        for error in problem["errors"]
    ]
    return Problem(problem["status"], problem["slug"], problem["title"], summary(errors), errors)


def _field(name: str, image: ImageSource, point_paths: Sequence[Sequence[str]]) -> str:
    """Return the request path of the image or of a prompt as in `PROMPT`.

    Other names are returned unchanged.
    """
    if name == tensors.INPUT_IMAGE.name:
        return image.field
    prompt = PROMPT.fullmatch(name)
    if not prompt:
        return name
    point_object, point_index, mask_object = prompt.groups()
    if mask_object:  # its object has a point, too
        path_of_first_point = point_paths[int(mask_object)][0]
        return re.sub(r"\w+(\[\d+\])?$", tensors.MASK_INPUT.name, path_of_first_point)
    return point_paths[int(point_object)][int(point_index)]


@contextlib.contextmanager
def service_errors(
    timeout_s: Callable[[], float], report_fault: Callable[[], None]
) -> Iterator[None]:
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
        _log_error("no response", f"Triton did not respond within {timeout_s():g} s")
        raise InferenceTimeout(f"no response within {timeout_s():g} s") from None
    except (aiohttp.ClientError, OSError) as error:
        _log_error("no connection", f"Triton cannot be reached: {error}")
        raise InferenceUnavailable(
            "the inference server is starting or restarting; retry later"
        ) from None
    except InferenceServerException as error:
        raise _from_triton(error, report_fault) from None


def _log_error(kind: str, line: str) -> None:
    ERROR_LOG.log(f"Triton: {kind}", line, ADDRESS.get(""))


def _from_triton(error: InferenceServerException, report_fault: Callable[[], None]) -> ServiceError:
    message = str(error.message())
    _log_error("error", f"Triton responded with status {error.status()}: {message}")
    if message.startswith("Request for unknown model"):
        return NotLoaded("the model is not loaded; retry later")
    # The orchestrator found that the deadline had passed.
    if message.startswith("request cancelled"):
        return InferenceTimeout("no response before the deadline")
    if health.is_stub_failure(message):
        report_fault()
    if health.is_out_of_memory(message):
        _log_error("memory", MEMORY_REMEDY)
        return InferenceUnavailable(
            "the server has too little free memory for this image; retry later"
        )
    for text, detail in UNAVAILABLE.items():
        if text in message.lower():
            return InferenceUnavailable(detail)
    return InferenceFailed("the model could not process this request; see the server's log")
