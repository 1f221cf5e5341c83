"""The calls of Triton, behind a protocol, so that everything above it can be tested without Triton."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import orjson
from tritonclient.http import InferRequestedOutput

from utils import spans, tensors
from utils.errors import FieldError, InvalidRequest, NotLoaded, Problem, RejectedByModel, summary
from utils.images import ImageSource
from utils.inference import UNCOMPRESSED, infer_input, service_errors
from utils.prompts import Prompts
from utils.schemas import MaskFormat, PictureStyle, invalid

NOT_CACHED = "image-not-cached"
HASHED_AT_ONCE = 1_000_000
"""Bytes that take a millisecond; larger files are hashed beside the event loop."""


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

    mask: bytes
    picture: bytes | None
    """A PNG file, or None where none was asked for."""
    result: bytes
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
                once, and one that is on its way; the others wait here, where those of callers who leave are dropped:
                what Triton has begun, or let wait, it also finishes.
        """
        self._infer = infer
        self._timeout = timeout
        self._turns = {model: asyncio.Semaphore(count + 1) for model, count in (instances or {}).items()}

    async def embed(self, image: ImageSource, model_version: int | None = None) -> bytes:
        """Encode an image ahead of the first prompt; the result, JSON."""
        answer = await self._known_or_new(image, {}, model_version=model_version)
        return answer[tensors.RESULT]

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
        answer = await self._known_or_new(image, inputs, prompts.fields, job.model_version)
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
        answer = await self._ask(tensors.EVERYTHING, inputs, self._timeout, model_version=batch.model_version)
        found: list[dict[str, Any]] = orjson.loads(answer[tensors.RECORDS])
        return found

    async def _known_or_new(
        self,
        image: ImageSource,
        inputs: dict[tensors.Tensor, npt.NDArray[Any]],
        fields: Sequence[Sequence[str]] = (),
        model_version: int | None = None,
    ) -> dict[tensors.Tensor, bytes]:
        """Ask the processes that only answer for known images, which are never busy with new ones; then the others.

        The first are told the image's id alone, also where a file came: it goes no further if they know it.
        """
        deadline = asyncio.get_running_loop().time() + self._timeout
        known = _image_inputs(ImageSource(None, await _image_id(image), image.owner)) | inputs
        try:
            try:
                return await self._ask(tensors.SEGMENT_CACHED, known, self._timeout, fields, model_version)
            except RejectedByModel as error:
                if error.problem().slug != NOT_CACHED:
                    raise
            left = deadline - asyncio.get_running_loop().time()
            return await self._ask(tensors.SEGMENT, _image_inputs(image) | inputs, left, fields, model_version)
        except NotLoaded:
            if model_version is None:
                raise
            raise unknown_version(model_version) from None

    async def _ask(
        self,
        model: str,
        inputs: Mapping[tensors.Tensor, npt.NDArray[Any]],
        timeout: float,
        fields: Sequence[Sequence[str]] = (),
        model_version: int | None = None,
    ) -> dict[tensors.Tensor, bytes]:
        """The outputs of a model; `fields` names the points of each object for error messages."""
        declared = tensors.MODELS[model][1]
        outputs = [InferRequestedOutput(tensor.name, binary_data=True) for tensor in declared]
        asked = "" if model_version is None else str(model_version)

        async def in_turn() -> Any:
            async with contextlib.AsyncExitStack() as turn:
                with spans.waiting(model):
                    await turn.enter_async_context(self._turns.get(model, contextlib.nullcontext()))
                given = [infer_input(tensor.name, tensor.datatype, value) for tensor, value in inputs.items()]
                with spans.asking(model) as traced:
                    headers = {**UNCOMPRESSED, **traced}
                    return await self._infer(
                        model_name=model, model_version=asked, inputs=given, outputs=outputs, headers=headers
                    )

        with service_errors(self._timeout):
            answer = await asyncio.wait_for(in_turn(), timeout)
        values = {tensor: answer.as_numpy(tensor.name)[0] for tensor in declared}
        if values[tensors.PROBLEM]:
            raise RejectedByModel(_problem(values[tensors.PROBLEM], fields))
        return values


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
    names = {
        f"points[{item}][{index}]": name for item, points in enumerate(fields) for index, name in enumerate(points)
    }
    errors = [FieldError(names.get(e["field"], e["field"]), e["expected"], e["got"]) for e in found["errors"]]
    return Problem(found["status"], found["slug"], found["title"], summary(errors), errors)
