"""The calls of Triton, behind a protocol, so that everything above it can be tested without Triton."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import orjson
from tritonclient.http import InferRequestedOutput

from utils import spans, tensors
from utils.edge.callers import ADDRESS, CALLER
from utils.errors import FieldError, InvalidRequest, NotLoaded, Overloaded, Problem, RejectedByModel, summary
from utils.exchange import Content, Exchange, Spooled, as_bytes
from utils.images import ImageSource
from utils.inference import UNCOMPRESSED, infer_input, service_errors
from utils.prompts import Prompts
from utils.schemas import MaskFormat, PictureStyle, has_more_than, invalid
from utils.turns import Turns

NOT_CACHED, COSTLY = "image-not-cached", "costly"
ALWAYS_COSTLY_OBJECTS = 13
"""So many objects take long on any image: they are not asked of processes that would refuse them."""
MOST_COSTLY_WAITING = 8
"""Requests that take long which one API worker lets wait; they must not take the places of clicks."""
WAIT_FOR_ROOM_S = 1.0
"""Seconds that such a request waits where as many wait already; then it is refused."""
POINT = re.compile(r"points\[(\d+)\]\[(\d+)\]")
"""A point in the orchestrator's problems."""
HASHED_AT_ONCE = 1_000_000
"""Bytes that take a millisecond; larger files are hashed beside the event loop."""


Ask = Callable[[str, dict[tensors.Tensor, npt.NDArray[Any]]], Awaitable[dict[tensors.Tensor, Content]]]
"""Gives the outputs of a model for inputs."""


@dataclass(frozen=True)
class Job:
    """What to find on an image, and how to answer."""

    prompts: Prompts
    multimask_output: bool
    mask_format: MaskFormat
    picture_style: PictureStyle
    low_res_mask: bool
    model_version: int | None = None
    """Which is asked; None: the newest that is loaded."""


@dataclass(frozen=True)
class Segmentation:
    """What the model answers: the bodies of the answer's parts."""

    mask: Content
    picture: Content | None
    """A PNG file, or None where none was asked for."""
    result: Content
    """JSON."""


@dataclass(frozen=True)
class GridBatch:
    """Clicks on a crop of an image, and what their masks must reach."""

    crop_box: tuple[int, int, int, int]
    """x0, y0, x1, y1 in pixels of the image."""
    points_xy: npt.NDArray[np.float32]
    """(N, 2) float32, x then y, pixels of the image."""
    pred_iou_thresh: float | None
    stability_score_thresh: float | None
    stability_score_offset: float
    min_mask_region_area: int
    model_version: int
    """Which is asked: that which encoded the image."""


class Segmenter(Protocol):
    """Something that segments images. Each method raises a `ServiceError`: the caller's image or a prompt is at fault,
    or the model cannot answer."""

    async def embed(self, image: ImageSource, model_version: int | None = None) -> bytes:
        """Encode an image ahead of the first prompt; the result, JSON."""

    async def segment(self, image: ImageSource, job: Job) -> Segmentation:
        """Find objects on an image."""

    async def records(self, image: ImageSource, batch: GridBatch) -> list[dict[str, Any]]:
        """The automatic masks of a batch that are worth keeping."""


class TritonSegmenter:
    """Asks the orchestrator's models of a Triton.

    Each method raises `RejectedByModel` (the image or a prompt is at fault), `InferenceUnavailable` (Triton cannot be
    reached, or the model is not loaded), `InferenceTimeout` or `InferenceFailed`.
    """

    def __init__(
        self, infer: Callable[..., Awaitable[Any]], timeout: float, instances: Mapping[str, int] | None = None
    ) -> None:
        """Make a segmenter.

        Args:
            infer: `InferenceServerClient.infer` of `tritonclient.http.aio`, or the runner's method of that name.
            timeout: seconds that one answer may take, the wait for its turn included.
            instances: processes of each of the orchestrator's models. Of each model so many requests are in Triton at
                once, and one that is on its way; the others wait here, where callers take turns, and the requests of
                those who leave are dropped.
        """
        self._infer = infer
        self._timeout = timeout
        self._turns = {
            model: Turns(count + 1, MOST_COSTLY_WAITING if model == tensors.SEGMENT_COSTLY else None)
            for model, count in (instances or {}).items()
        }

    async def embed(self, image: ImageSource, model_version: int | None = None) -> bytes:
        """Encode an image ahead of the first prompt; the result, JSON."""
        answer = await self._by_one_that_can(image, {}, model_version=model_version)
        return as_bytes(answer[tensors.RESULT])

    def check_room(self, body: bytes) -> None:
        """Would this request for masks be taken now? Asked before more is done for it.

        Args:
            body: JSON, not looked into where there is room. Its objects are JSON's own; images, in base64, have none.

        Raises:
            Overloaded: as many as may wait already.
        """
        turns = self._turns.get(tensors.SEGMENT_COSTLY)
        try:
            if turns:
                turns.check()
        except Overloaded:
            if has_more_than(ALWAYS_COSTLY_OBJECTS, b"{", body):
                raise

    async def segment(self, image: ImageSource, job: Job) -> Segmentation:
        """Find objects on an image."""
        prompts = job.prompts
        inputs = {
            tensors.POINT_COORDS: prompts.points_xy,
            tensors.POINT_LABELS: prompts.labels,
            tensors.MULTIMASK_OUTPUT: np.array([job.multimask_output]),
            tensors.MASK_FORMAT: _bytes(job.mask_format.encode()),
            tensors.SEGMENTED_IMAGE: _bytes(job.picture_style.encode()),
            tensors.LOW_RES_MASK: np.array([job.low_res_mask]),
        }
        if len(prompts.masks):
            inputs |= {tensors.MASK_INPUT: prompts.masks, tensors.MASK_INPUT_OBJECT: prompts.mask_objects}
        answer = await self._by_one_that_can(image, inputs, prompts.fields, job.model_version)
        return Segmentation(answer[tensors.MASK], answer[tensors.PICTURE] or None, answer[tensors.RESULT])

    async def records(self, image: ImageSource, batch: GridBatch) -> list[dict[str, Any]]:
        """The automatic masks of a batch that are worth keeping."""
        inputs = _image_inputs(image) | {
            tensors.CROP_BOX: np.array(batch.crop_box, np.int32),
            tensors.GRID_COORDS: batch.points_xy,
            tensors.STABILITY_SCORE_OFFSET: np.array([batch.stability_score_offset], np.float32),
            tensors.MIN_MASK_REGION_AREA: np.array([batch.min_mask_region_area], np.int32),
        }
        for tensor, value in (
            (tensors.PRED_IOU_THRESH, batch.pred_iou_thresh),
            (tensors.STABILITY_SCORE_THRESH, batch.stability_score_thresh),
        ):
            if value is not None:
                inputs[tensor] = np.array([value], np.float32)
        with Exchange(self._deadline()) as exchange:
            ask = self._asking(exchange, model_version=batch.model_version)
            found: list[dict[str, Any]] = orjson.loads(
                as_bytes((await ask(tensors.EVERYTHING, inputs))[tensors.RECORDS])
            )
        exchange.close()
        return found

    async def _by_one_that_can(
        self,
        image: ImageSource,
        inputs: dict[tensors.Tensor, npt.NDArray[Any]],
        fields: Sequence[Sequence[str]] = (),
        model_version: int | None = None,
    ) -> dict[tensors.Tensor, Content]:
        """Ask the processes that only answer for known images, which are never busy with new ones; then the others.

        The first are told the image's id alone, also where a file came: it goes no further if they know it. What takes
        long is refused by both, and goes to processes that do nothing else.
        """
        with Exchange(self._deadline()) as exchange:
            ask = self._asking(exchange, fields, model_version)
            try:
                return await self._asked_in_order(ask, image, inputs, objects=len(fields))
            except NotLoaded:
                if model_version is None:
                    raise
                raise unknown_version(model_version) from None

    async def _asked_in_order(
        self, ask: Ask, image: ImageSource, inputs: dict[tensors.Tensor, npt.NDArray[Any]], *, objects: int
    ) -> dict[tensors.Tensor, Content]:
        whole = _image_inputs(image) | inputs
        if objects < ALWAYS_COSTLY_OBJECTS:
            known = _image_inputs(ImageSource(None, await _image_id(image), image.owner)) | inputs
            why = NOT_CACHED
            for model, values in ((tensors.SEGMENT_CACHED, known), (tensors.SEGMENT, whole)):
                if why == NOT_CACHED:
                    try:
                        return await ask(model, values)
                    except RejectedByModel as error:
                        why = error.problem().slug
                        if why != COSTLY and (why != NOT_CACHED or model == tensors.SEGMENT):
                            raise
        return await ask(tensors.SEGMENT_COSTLY, whole)

    def _deadline(self) -> float:
        return time.monotonic() + self._timeout

    def _asking(
        self, exchange: Exchange, fields: Sequence[Sequence[str]] = (), model_version: int | None = None
    ) -> Ask:
        """A function that gives the outputs of a model for inputs, for one request.

        Args:
            exchange: of the request; closed once it has an answer that has no parts in it.
            fields: names the points of each object for error messages.
            model_version: which is asked; None: the newest.
        """
        asked = "" if model_version is None else str(model_version)

        async def in_turn(model: str, inputs: dict[tensors.Tensor, npt.NDArray[Any]]) -> Any:
            async with contextlib.AsyncExitStack() as turn:
                with spans.wait_span(model):
                    places = self._turns.get(model)
                    if places:
                        caller = CALLER.get() or ADDRESS.get()
                        try:
                            await turn.enter_async_context(places.turn(caller))
                        except Overloaded:
                            # Much has been done for it by now: who comes again at once waits here, not at the start.
                            await asyncio.sleep(WAIT_FOR_ROOM_S)
                            await turn.enter_async_context(places.turn(caller))
                light = model in (tensors.SEGMENT_CACHED, tensors.SEGMENT)
                values = {**await exchange.put(inputs), tensors.EXCHANGE: exchange.describe(light=light)}
                given = [infer_input(tensor.name, tensor.datatype, value) for tensor, value in values.items()]
                outputs = [InferRequestedOutput(tensor.name, binary_data=True) for tensor in tensors.MODELS[model][1]]
                with spans.infer_span(model) as traced:
                    headers = {**UNCOMPRESSED, **traced}
                    return await self._infer(
                        model_name=model, model_version=asked, inputs=given, outputs=outputs, headers=headers
                    )

        async def ask(model: str, inputs: dict[tensors.Tensor, npt.NDArray[Any]]) -> dict[tensors.Tensor, Content]:
            with service_errors(self._timeout):
                answer = await asyncio.wait_for(in_turn(model, inputs), exchange.deadline - time.monotonic())
            return _contents(model, answer, exchange, fields)

        return ask


def _contents(
    model: str, answer: Any, exchange: Exchange, fields: Sequence[Sequence[str]]
) -> dict[tensors.Tensor, Content]:
    """The outputs of a model, as they came or in the request's file.

    Raises:
        RejectedByModel: the model says so.
    """
    parts = [tensor for tensor in tensors.MODELS[model][1] if tensor not in (tensors.SPOOLED, tensors.PROBLEM)]
    problem = answer.as_numpy(tensors.PROBLEM.name)[0]
    if problem:
        raise RejectedByModel(_problem(problem, fields))
    contents: dict[tensors.Tensor, Content] = {}
    offset = 0
    for tensor, size in zip(parts, answer.as_numpy(tensors.SPOOLED.name).tolist(), strict=True):
        contents[tensor] = Spooled(exchange, offset, size) if size else answer.as_numpy(tensor.name)[0]
        offset += size
    if not offset:
        exchange.close()
    return contents


def unknown_version(model_version: int) -> InvalidRequest:
    """The refusal of a request that names a version which is not loaded."""
    return invalid("model_version", "a version that is loaded: `GET /info` names them", str(model_version))


async def _image_id(image: ImageSource) -> str:
    if image.file is None:
        return image.image_id or ""
    if len(image.file) <= HASHED_AT_ONCE:
        return hashlib.sha256(image.file).hexdigest()
    return (await asyncio.to_thread(hashlib.sha256, image.file)).hexdigest()


def _image_inputs(image: ImageSource) -> dict[tensors.Tensor, npt.NDArray[Any]]:
    owner = {tensors.IMAGE_OWNER: _bytes(image.owner.encode())} if image.owner else {}
    if image.file is not None:
        return {tensors.INPUT_IMAGE: _bytes(image.file), **owner}
    return {tensors.IMAGE_ID: _bytes((image.image_id or "").encode()), **owner}


def _bytes(data: bytes) -> npt.NDArray[np.object_]:
    return np.array([data], np.object_)


def _problem(document: bytes, fields: Sequence[Sequence[str]]) -> Problem:
    """The orchestrator's problem, with its points named as the caller named them."""
    found = json.loads(document)
    errors = [FieldError(_field(e["field"], fields), e["expected"], e["got"]) for e in found["errors"]]
    return Problem(found["status"], found["slug"], found["title"], summary(errors), errors)


def _field(name: str, fields: Sequence[Sequence[str]]) -> str:
    """What the caller calls `points[object][index]`."""
    point = POINT.fullmatch(name)
    return fields[int(point[1])][int(point[2])] if point else name
