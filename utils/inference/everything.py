"""Automatic masks of a whole image: batches of grid points on the image and on crops of it.

The procedure follows Segment Anything's automatic mask generator
(https://github.com/facebookresearch/segment-anything, `automatic_mask_generator.py` and
`utils/amg.py`). The model applies the thresholds; this module removes duplicates.
"""

import asyncio
import contextlib
import itertools
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any

import cv2
import numpy as np
import numpy.typing as npt
import orjson
from pydantic import BaseModel, Field

from orchestrator import tensors
from orchestrator.costs import max_batch_points
from orchestrator.reduced import Reduction
from utils.errors import (
    AnswerTooLarge,
    InferenceTimeout,
    InferenceUnavailable,
    NotLoaded,
    Stopping,
    invalid,
    unknown_version,
)
from utils.inference.request import ImageSource, InferenceRequest
from utils.inference.segmenter import Segmenter

MAX_GRID_POINTS = 20_000
"""Maximum number of points in all grids of a request: about five minutes on two cores."""
MAX_RESTART_S, RETRY_INTERVAL_S = 60.0, 2.0
"""Time for which a batch waits until the model is available again, and between two attempts."""
RECORD_OVERHEAD_BYTES = 400
"""Size of a record without its RLE counts."""
MODEL_OPTIONS = {
    "pred_iou_thresh",
    "stability_score_thresh",
    "stability_score_offset",
    "min_mask_region_area",
}
"""Fields of a request that the model applies."""
GRID_FIELDS = (("points_per_side",),)
"""Request path of the first point, which stands for all."""
INTERNAL_KEYS = ("box", "changed")
"""Keys of the model's records that are not part of the response."""

MAX_REGION_AREA = 10**9
"""Largest `min_mask_region_area`, in pixels."""
Fraction = Annotated[float, Field(allow_inf_nan=False, ge=0, le=1)]

Box = tuple[int, int, int, int]
Record = dict[str, Any]
Step = dict[str, Any]
"""Progress: `done` and `total` batches. The first one has the image's `orientation`, which is sent
as a header.

The last one has the `result`: `embed`'s result with the records as `masks`."""


class AutomaticMasks(BaseModel):
    """Options of automatic masks.

    Names and most defaults are those of Segment Anything's generator.
    """

    points_per_side: int = Field(32, ge=1, le=64, description="points along each side of the grid")
    pred_iou_thresh: Fraction | None = Field(
        None, description="minimum `predicted_iou` of a mask. Default: 0.88 for MobileSAM's weights"
    )
    stability_score_thresh: Fraction | None = Field(
        None,
        description=(
            "minimum `stability_score` of a mask: the IoU between the mask at a raised and a"
            " lowered threshold. Default: 0.95 for MobileSAM's weights"
        ),
    )
    stability_score_offset: float = Field(
        1.0,
        gt=0,
        le=20,
        description="how far the threshold is raised and lowered for `stability_score`, in logits",
    )
    box_nms_thresh: Fraction = Field(
        0.7,
        description="box IoU above which the mask with the lower score is dropped as a duplicate",
    )
    crop_n_layers: int = Field(
        0, ge=0, le=3, description="layers of crops to segment as well; layer i has 4^i crops"
    )
    crop_nms_thresh: Fraction = Field(
        0.7,
        description=(
            "the same as `box_nms_thresh` between crops; the mask from the smaller crop is kept"
        ),
    )
    crop_overlap_ratio: Fraction = Field(
        512 / 1500,
        description=(
            "overlap of the crops in layer 1, as a fraction of the shorter side; halved with each"
            " layer"
        ),
    )
    crop_n_points_downscale_factor: int = Field(
        1,
        ge=1,
        le=16,
        description="the grid of layer i has `points_per_side` divided by this factor^i",
    )
    min_mask_region_area: int = Field(
        0, ge=0, le=MAX_REGION_AREA, description="fill holes and remove islands with fewer pixels"
    )


async def everything(
    segmenter: Segmenter,
    image: ImageSource,
    options: AutomaticMasks,
    model_version: int | None,
    max_answer_bytes: int,
    *,
    time_left_s: Callable[[], float] = lambda: math.inf,
) -> AsyncIterator[Step]:
    """Segment a whole image and yield the progress after each batch.

    All batches use one model version. If that is unloaded meanwhile and the request did not ask for
    it, the work starts again with the newest version. The size of all records, duplicates included,
    is limited to `max_answer_bytes`. `time_left_s` returns the seconds for which a service that
    stops waits for this request.

    Raises:
        ServiceError: the image is invalid, the response would be too large, the model is
            unavailable, or the service stops and the batches so far took so long that the others
            would not end in time.
    """
    try:
        async for step in _segment_by_one_version(
            segmenter, image, options, model_version, max_answer_bytes, time_left_s=time_left_s
        ):
            yield step
    except NotLoaded:
        if model_version is not None:
            raise unknown_version(model_version) from None
        async for step in _segment_by_one_version(
            segmenter, image, options, model_version, max_answer_bytes, time_left_s=time_left_s
        ):
            yield step


async def _segment_by_one_version(
    segmenter: Segmenter,
    image: ImageSource,
    options: AutomaticMasks,
    model_version: int | None,
    max_answer_bytes: int,
    *,
    time_left_s: Callable[[], float],
) -> AsyncIterator[Step]:
    result: dict[str, Any] = orjson.loads(await segmenter.embed(image, model_version))
    height, width = result["height"], result["width"]
    x0, y0, x1, y1 = result.get("region", (0, 0, width, height))
    crops = crop_boxes(
        (y1 - y0, x1 - x0), options.crop_n_layers, options.crop_overlap_ratio, (x0, y0)
    )
    points = sum(_points_per_side(options, layer) ** 2 for _, layer in crops)
    if points > MAX_GRID_POINTS:
        raise invalid(
            "points_per_side",
            f"at most {MAX_GRID_POINTS} points in all grids together",
            f"{points}",
        )
    version = result["model_version"]
    reduction = Reduction((height, width), result.get("reduction", 1))
    work = []
    for crop, layer in crops:
        size = min(segmenter.batch_points, _points_that_fit(crop, options, reduction))
        work.append(_batches(crop, options, layer, size, version))
    done, total = 0, sum(map(len, work))
    began = time.monotonic()
    yield {"done": done, "total": total, "orientation": result["orientation"]}
    records: list[Record] = []
    image = replace(image, image_id=result["image_id"])
    for batches in work:
        of_crop: list[Record] = []
        size = sum(map(_record_bytes, records))
        async with contextlib.aclosing(_in_parallel(segmenter, image, batches)) as answers:
            async for answer in answers:
                size += sum(map(_record_bytes, answer["masks"]))
                if size > max_answer_bytes:
                    raise AnswerTooLarge(max_answer_bytes)
                of_crop += answer["masks"]
                # The decoder's precision may differ from that of other answers.
                result["engine"] = answer["engine"]
                done += 1
                if (
                    done < total
                    and (time.monotonic() - began) / done * (total - done) > time_left_s()
                ):
                    raise Stopping(
                        "the service is shutting down and would not finish this request in time"
                    )
                if done < total:
                    yield {"done": done, "total": total}
        scores = [record["predicted_iou"] for record in of_crop]
        records += await asyncio.to_thread(box_nms, of_crop, scores, options.box_nms_thresh)
    records = await asyncio.to_thread(_remove_duplicates, records, options, len(crops))
    masks = [
        {name: record[name] for name in record if name not in INTERNAL_KEYS} for record in records
    ]
    yield {"done": total, "total": total, "result": {**result, "masks": masks}}


async def _in_parallel(
    segmenter: Segmenter, image: ImageSource, batches: Sequence[InferenceRequest]
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the answer to each batch in order.

    The model works on as many at once as it has processes.
    """
    tasks: deque[asyncio.Task[dict[str, Any]]] = deque()
    try:
        for batch in batches:
            tasks.append(asyncio.create_task(_records(segmenter, image, batch)))
            if len(tasks) >= segmenter.parallel_batches:
                yield await tasks.popleft()
        while tasks:
            yield await tasks.popleft()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _records(
    segmenter: Segmenter, image: ImageSource, batch: InferenceRequest
) -> dict[str, Any]:
    """Return the answer to a batch.

    Wait once for a restart of the model, which would cost the batches before it.
    """
    try:
        return await segmenter.records(image, batch)
    except NotLoaded:
        raise
    except InferenceUnavailable:
        for _ in range(int(MAX_RESTART_S / RETRY_INTERVAL_S)):
            await asyncio.sleep(RETRY_INTERVAL_S)
            with contextlib.suppress(InferenceUnavailable):
                await segmenter.embed(image, batch.model_version)
                break
        else:
            raise
        # Once: the batch may be what the model died of.
        return await segmenter.records(image, batch)


async def result_of(steps: AsyncIterator[Step], timeout: float) -> dict[str, Any]:
    """Return the result of the last step.

    Raises:
        InferenceTimeout: the steps take longer than `timeout` seconds.
        ServiceError: as raised by `everything`.
    """

    async def last() -> dict[str, Any]:
        result: dict[str, Any] = [step async for step in steps][-1]["result"]
        return result

    try:
        return await asyncio.wait_for(last(), timeout)
    except asyncio.TimeoutError:
        advice = "set progress to true, which has no time limit, or reduce points_per_side"
        raise InferenceTimeout(f"no response within {timeout:g} s: {advice}") from None


def crop_boxes(
    size_hw: tuple[int, int], layers: int, overlap_ratio: float, origin_xy: tuple[int, int] = (0, 0)
) -> list[tuple[Box, int]]:
    """Return the whole image or region as layer 0 and, for each further layer i, 2^i x 2^i
    overlapping crops.

    Args:
        size_hw: height and width of the image or region.
        layers: number of layers in addition to layer 0.
        overlap_ratio: overlap in layer 1 as a fraction of the shorter side; halved with each
            further layer.
        origin_xy: first pixel of the region in the image.

    Returns:
        Pairs of a box (x0, y0, x1, y1) in pixels and its layer.
    """
    height, width = size_hw
    boxes: list[tuple[Box, int]] = [((0, 0, width, height), 0)]
    for layer in range(1, layers + 1):
        count = 2**layer
        overlap = int(overlap_ratio * min(size_hw) * 2 / count)
        wide, high = (math.ceil((overlap * (count - 1) + side) / count) for side in (width, height))
        for column, row in itertools.product(range(count), range(count)):
            x0, y0 = (wide - overlap) * column, (high - overlap) * row
            if x0 < width and y0 < height:
                box = x0, y0, min(x0 + wide, width), min(y0 + high, height)
                boxes.append((box, layer))
    left, top = origin_xy
    return [
        ((x0 + left, y0 + top, x1 + left, y1 + top), layer) for (x0, y0, x1, y1), layer in boxes
    ]


def grid(box: Box, per_side: int) -> npt.NDArray[np.float32]:
    """Return the centers of a box's per_side x per_side equal cells, row by row: (per_side^2, 2)
    float32, x then y.

    Args:
        box: x0, y0, x1, y1.
        per_side: at least 1.
    """
    centers = (np.arange(per_side) + 0.5) / per_side
    x, y = np.meshgrid(box[0] + centers * (box[2] - box[0]), box[1] + centers * (box[3] - box[1]))
    points_xy: npt.NDArray[np.float32] = np.stack([x.ravel(), y.ravel()], axis=1).astype(np.float32)
    return points_xy


def _points_that_fit(crop: Box, options: AutomaticMasks, reduction: Reduction) -> int:
    """Return the largest number of points in a request for a crop, at least 1."""
    left, top, right, bottom = reduction.cells(crop)
    image_cells, crop_cells = math.prod(reduction.grid_hw), (right - left) * (bottom - top)
    fits = max_batch_points(
        image_cells, crop_cells, remove_small_regions=bool(options.min_mask_region_area)
    )
    return max(1, fits)  # not even one may fit: the orchestrator rejects it


def _batches(
    crop: Box, options: AutomaticMasks, layer: int, size: int, model_version: int
) -> list[InferenceRequest]:
    """Return the requests for the points of a crop's grid, `size` points in each."""
    points_xy = grid(crop, _points_per_side(options, layer))
    model_options = {
        "crop_box": crop,
        **options.model_dump(include=MODEL_OPTIONS, exclude_none=True),
    }
    batches = []
    for start in range(0, len(points_xy), size):
        inputs = {tensors.GRID_POINTS_XY.name: points_xy[start : start + size]}
        batches.append(InferenceRequest(inputs, model_options, model_version, GRID_FIELDS))
    return batches


def _points_per_side(options: AutomaticMasks, layer: int) -> int:
    downscaled: int = options.points_per_side // options.crop_n_points_downscale_factor**layer
    return max(1, downscaled)


def _record_bytes(record: Record) -> int:
    """Return the approximate size of a record in the response."""
    counts: str = record["segmentation"]["counts"]
    return RECORD_OVERHEAD_BYTES + len(counts)


def _remove_duplicates(records: list[Record], options: AutomaticMasks, crops: int) -> list[Record]:
    """Remove masks found in several crops, and masks that became duplicates when small regions
    were removed.
    """
    if crops > 1:
        priority = [1 / (record["crop_box"][2] * record["crop_box"][3]) for record in records]
        records = box_nms(records, priority, options.crop_nms_thresh)
    if options.min_mask_region_area:
        for record in records:
            x, y, width, height = record["bbox"]
            record["box"] = [x, y, x + width, y + height]
        priority = [0.0 if record["changed"] else 1.0 for record in records]
        records = box_nms(records, priority, max(options.box_nms_thresh, options.crop_nms_thresh))
    return records


def box_nms(records: list[Record], priority: list[float], threshold: float) -> list[Record]:
    """Drop records that overlap one of higher priority by a box IoU above `threshold`.

    Sort by falling priority.
    """
    boxes = []
    for record in records:
        x0, y0, x1, y1 = record["box"]
        boxes.append((x0, y0, x1 - x0, y1 - y0))
    above_zero = [max(value, 1e-9) for value in priority]  # OpenCV drops the others
    return [records[index] for index in cv2.dnn.NMSBoxes(boxes, above_zero, 0, threshold)]
