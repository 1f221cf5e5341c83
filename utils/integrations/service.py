"""The service's own functions for adapters, and masks in the forms of tools, within a budget of
work.
"""

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import orjson

from orchestrator.costs import COSTLY_WORK_S, MAX_WORK_S, Workload
from orchestrator.problems import Rejected
from orchestrator.reduced import GRID_RLE, Reduction
from utils.api.accept import JSON, apply_answer_type
from utils.api.decoding import EMBEDDING_REQUEST
from utils.api.inputs import to_inference_request
from utils.api.request_body import validated
from utils.api.requests import EverythingRequest, SegmentRequest
from utils.background.encoder import BackgroundEncoder
from utils.errors import InvalidRequest, invalid
from utils.inference.everything import everything, result_of
from utils.inference.request import ImageSource
from utils.inference.segmenter import Segmenter
from utils.inference.shares import RecentCallers, Turns
from utils.integrations.advice import ADVICE
from utils.integrations.rasters import DECODE_NS, Record, size_of
from utils.observability.context import ADDRESS, caller
from utils.settings import INFERENCE_TIMEOUT_S, Settings

T = TypeVar("T")
Fields = Mapping[str, Any]
Document = Mapping[str, Any]
"""An answer: `masks`, `width`, `height`, `image_id`, `weights`; `work_s` is the model's
estimated work in seconds. `reduction` is the divisor of the sides of an image that was worked on
at a smaller size."""
GRID: Fields = {"points_per_side": 16}
"""Parameters of `/everything` for tools: a quarter of its points, so that an answer takes
seconds on a CPU."""
MAX_DOCUMENT_BYTES, MAX_POLYGON_BYTES = 64 * 2**20, 4 * 2**20
"""Largest JSON document of `/mobile_sam` that a tool's answer is made of, without and with
polygons. Parsing takes 0.1 s of the event loop; the numbers of polygons take longer per byte."""
MAX_WAITING = 8
"""Requests that may wait until their masks are converted."""
PAUSE_FACTOR = 4.0
"""Pause after the conversion of each mask, as a multiple of its time, while other callers are
active: the threads of a process have one priority, unlike Triton's processes for costly
requests."""


@dataclass(eq=False)
class MaskService:
    """The service's own functions in one API worker, with their fields and answers as Python
    objects.

    Images above the pixel limit are worked on at a smaller size, since the users of tools cannot
    scale them. Answers are in pixels of the image all the same, but for masks as `grid_rle`
    (`utils.integrations.rasters`).

    Methods raise a `ServiceError` for invalid fields, an invalid image or an unavailable model.
    """

    segmenter: Segmenter
    settings: Settings
    timeout_s: Callable[[], float] = lambda: INFERENCE_TIMEOUT_S
    """Returns the seconds for an answer."""
    active: RecentCallers = field(default_factory=RecentCallers)
    """Addresses of the worker's callers."""
    background: BackgroundEncoder | None = None
    """Jobs of callers."""
    time_left_s: Callable[[], float] = lambda: math.inf
    """Returns the time for which a service that stops waits for a request, infinite until then."""

    def __post_init__(self) -> None:
        self._costly = Turns(1, MAX_WAITING, name="costly requests")

    async def segment(self, image: ImageSource, fields: Fields) -> dict[str, Any]:
        """Return the JSON document of `/mobile_sam`, without a picture, for its fields but the
        image.

        `mask_format` is `rle` or `polygon`.
        """
        # Not strict: adapters have checked the values, and may pass lists for pairs and
        # dictionaries for objects.
        request = validated(SegmentRequest, fields, strict=False)
        apply_answer_type(request, JSON)
        prompts = to_inference_request(request, document=True, offer_clip=False)
        segmentation = await self.segmenter.segment(scaled_down(image), prompts)
        limit = MAX_POLYGON_BYTES if request.mask_format == "polygon" else MAX_DOCUMENT_BYTES
        if (size := len(segmentation.result)) > limit:
            expected = (
                f"masks of at most {limit} bytes as {request.mask_format} (use fewer prompts or a"
                " smaller image)"
            )
            raise invalid("prompts", expected, f"{size} bytes")
        document: dict[str, Any] = orjson.loads(bytes(segmentation.result))
        workload = Workload(
            objects=prompts.objects,
            masks=len(document["masks"]),
            mask_format=request.mask_format,
            points=sum(map(len, prompts.point_paths)),
        )
        pixels = document["width"] * document["height"] // pixels_per_cell(document)
        return {**_with_grids(document), "work_s": workload.work_s(pixels)}

    async def embed(self, image: ImageSource) -> dict[str, Any]:
        """Return the answer of `/embed`."""
        document: dict[str, Any] = orjson.loads(await self.segmenter.embed(scaled_down(image)))
        return document

    async def embedding(self, image: ImageSource) -> bytes:
        """Return the embedding of an image as a safetensors file."""
        return bytes((await self.segmenter.segment(scaled_down(image), EMBEDDING_REQUEST)).mask)

    async def embed_in_background(self, image: ImageSource) -> dict[str, Any]:
        """Queue an image and return its `image_id`."""
        assert self.background
        (queued,) = (await self.background.add([scaled_down(image)]))["images"]
        if problem := queued.get("problem"):
            raise InvalidRequest(problem["detail"])
        return {"image_id": queued["image_id"]}

    async def everything(self, image: ImageSource, fields: Fields) -> dict[str, Any]:
        """Return the answer of `/everything` for its fields but the image, with masks as
        `segment` has them.
        """
        options = validated(EverythingRequest, fields)
        steps = everything(
            self.segmenter,
            scaled_down(image),
            options,
            None,
            self.settings.max_answer_bytes,
            time_left_s=self.time_left_s,
        )
        document = await result_of(steps, self.timeout_s())
        masks = [
            _as_mask(record, GRID_RLE if "reduction" in document else "rle")
            for record in document["masks"]
        ]
        return {**_with_grids({**document, "masks": masks}), "work_s": 0.0}

    async def converted(
        self,
        document: Document,
        convert: Callable[[Record], Iterable[Any]],
        *,
        box_ns: float = 0.0,
        image_ns: float = DECODE_NS,
    ) -> list[orjson.Fragment]:
        """Return the masks of a document in a tool's form, in their order.

        Args:
            document: answer of `segment` or `everything`.
            convert: returns what the tool's answer has for a mask, as values for JSON; runs in a
                thread.
            box_ns: as in `work_on`.
            image_ns: as in `work_on`.

        Raises:
            InvalidRequest: the work or the answer exceeds its limit; the message has the number of
                masks that fit.
            Overloaded: too many costly conversions are waiting.
        """
        left, max_bytes = threading.Event(), self.settings.max_answer_bytes
        masks, work_s = document["masks"], document["work_s"]
        pause = PAUSE_FACTOR if self.active.has_others(ADDRESS.get()) else 0.0

        def run() -> list[orjson.Fragment]:
            converted: list[orjson.Fragment] = []
            size, now = 0, (started := time.thread_time())
            for number, mask in enumerate(masks):
                try:
                    items = [as_json(item) for item in convert(mask)]
                except Rejected as error:
                    raise InvalidRequest(ADVICE[error.slug]) from None
                converted += map(orjson.Fragment, items)
                size += sum(map(len, items))
                before, now = now, time.thread_time()
                # The estimate is of difficult masks; the work on one of noise can be several times
                # as much.
                if left.is_set() or work_s + now - started > MAX_WORK_S:
                    raise _too_much(f"{MAX_WORK_S:g} s of work", number, len(masks))
                if size > max_bytes:
                    raise _too_much(f"{max_bytes} bytes", number, len(masks))
                if now - started > COSTLY_WORK_S:
                    left.wait(pause * (now - before))
            return converted

        try:
            return await self.work_on(document, run, box_ns=box_ns, image_ns=image_ns)
        finally:
            left.set()  # ends the thread if the caller has left

    def check_boxes(self, document: Document, pixel_bytes: int) -> None:
        """Check that an answer with all pixels of the masks' boxes is not too large, before it is
        made.

        Args:
            document: answer of `segment` or `everything`.
            pixel_bytes: bytes of a pixel in the answer.

        Raises:
            InvalidRequest: it is; the message has the number of masks that fit.
        """
        limit, size, masks = self.settings.max_answer_bytes, 0, document["masks"]
        for number, mask in enumerate(masks):
            left, top, right, bottom = mask["box"]
            size += pixel_bytes * (right - left) * (bottom - top)
            if size > limit:
                raise _too_much(f"{limit} bytes", number, len(masks))

    async def work_on(
        self,
        document: Document,
        work: Callable[[], T],
        *,
        box_ns: float = 0.0,
        image_ns: float = DECODE_NS,
    ) -> T:
        """Return the result of work on the masks of a document in a thread. Costly work takes
        turns.

        Args:
            document: answer of `segment` or `everything`.
            work: the function to run.
            box_ns: estimated nanoseconds per pixel of a mask's box, or cell of the grid.
            image_ns: the same per pixel of the image, for each mask that must be decoded.

        Raises:
            InvalidRequest: the work would exceed its limit; the message has the number of masks
                that fit.
            Overloaded: too much costly work is waiting.
        """
        masks = document["masks"]
        cell = pixels_per_cell(document)
        own_s = 1e-9 * sum(
            image_ns * size_of(mask) + box_ns * (right - left) * (bottom - top) / cell
            for mask in masks
            for left, top, right, bottom in [mask["box"]]
        )
        if (total_s := document["work_s"] + own_s) > MAX_WORK_S:
            raise _too_much(
                f"{MAX_WORK_S:g} s of work", int(len(masks) * MAX_WORK_S / total_s), len(masks)
            )
        if own_s <= COSTLY_WORK_S:
            return await asyncio.to_thread(work)
        async with self._costly.place(caller()):
            return await asyncio.to_thread(work)


def pixels_per_cell(document: Document) -> int:
    """Return the number of the image's pixels in a cell of its masks, 1 unless it was worked on
    at a smaller size.
    """
    reduction: int = document.get("reduction", 1)
    return reduction**2


def scaled_down(image: ImageSource) -> ImageSource:
    """Return the image as one that may be worked on at a smaller size."""
    return replace(image, scale_down=True)


def _with_grids(document: Document) -> dict[str, Any]:
    """Return a document with the grid of each mask of an image that was worked on at a smaller
    size.
    """
    if "reduction" not in document:
        return {**document}
    grid = Reduction((document["height"], document["width"]), document["reduction"])
    return {**document, "masks": [{**mask, "grid": grid} for mask in document["masks"]]}


def _as_mask(record: Record, rle_member: str) -> Record:
    """Return a record of `/everything` with the names of `/mobile_sam`, and this one of the
    segmentation.
    """
    left, top, width, height = record["bbox"]
    box = [left, top, left + width, top + height]
    return {
        "score": record["predicted_iou"],
        "area": record["area"],
        "box": box,
        rle_member: record["segmentation"],
    }


def _too_much(limit: str, fits: int, count: int) -> InvalidRequest:
    expected = (
        f"at most {fits} masks like these ({limit}): use fewer prompts, higher thresholds or a"
        " smaller image"
    )
    return invalid("image", expected, f"{count} masks")


def as_json(document: Any) -> bytes:
    """Return a document, which may have NumPy arrays, as JSON."""
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
