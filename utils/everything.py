"""Automatic masks of a whole image: a grid of clicks, batch by batch, on the image and on crops of it.

The procedure is that of Segment Anything's automatic mask generator (https://github.com/facebookresearch/segment-anything,
`automatic_mask_generator.py` and `utils/amg.py`). The model keeps what reaches the thresholds; here duplicates go.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from utils.errors import AnswerTooLarge, InferenceTimeout, NotLoaded, RejectedByModel
from utils.images import ImageSource
from utils.schemas import EverythingRequest, invalid
from utils.segmenter import NOT_CACHED, GridBatch, Segmenter, unknown_version

MAX_CLICKS = 20_000
"""Of all grids together: on two cores they take some five minutes."""
POINTS_PER_BATCH = 16
"""Clicks that the model gets at once: few enough that a caller's own click between two batches does not wait long."""
RECORD_BYTES = 400
"""Of a record without its run lengths."""
INTERNAL = ("box", "tidied")
"""Members of the model's records that are not for callers."""

Box = tuple[int, int, int, int]
Record = dict[str, Any]


@dataclass(frozen=True)
class Progress:
    """How far the work is, in batches; with the last comes the result."""

    done: int
    total: int
    result: dict[str, Any] | None = None
    """What `embed` says of the image, and `masks`: the records."""

    def as_json(self) -> dict[str, Any]:
        """The line of an answer that shows how far it is."""
        result = {} if self.result is None else {"result": self.result}
        return {"done": self.done, "total": self.total, **result}


async def everything(
    segmenter: Segmenter, image: ImageSource, request: EverythingRequest, max_answer_bytes: int
) -> AsyncIterator[Progress]:
    """Segment a whole image, and say how far that is after each batch.

    All of it is one version's work. Where that is unloaded meanwhile, and was not asked for, the newest begins anew.

    Args:
        segmenter: segments the image's parts.
        image: the image.
        request: how to segment it.
        max_answer_bytes: that the records may have, and those that are not yet told from duplicates.

    Raises:
        ServiceError: the image is at fault, the answer would be too large, or the model cannot answer.
    """
    try:
        async for step in _by_one_version(segmenter, image, request, max_answer_bytes):
            yield step
    except NotLoaded:
        if request.model_version is not None:
            raise unknown_version(request.model_version) from None
        async for step in _by_one_version(segmenter, image, request, max_answer_bytes):
            yield step


async def _by_one_version(
    segmenter: Segmenter, image: ImageSource, request: EverythingRequest, max_answer_bytes: int
) -> AsyncIterator[Progress]:
    result: dict[str, Any] = orjson.loads(await segmenter.embed(image, request.model_version))
    crops = crop_boxes((result["height"], result["width"]), request.crop_n_layers, request.crop_overlap_ratio)
    clicks = sum(_per_side(request, layer) ** 2 for _, layer in crops)
    if clicks > MAX_CLICKS:
        raise invalid("points_per_side", f"grids of together at most {MAX_CLICKS} clicks", f"{clicks}")
    work = [(crop, _batches(crop, request, layer, result["model_version"])) for crop, layer in crops]
    done, total = 0, sum(len(batches) for _, batches in work)
    yield Progress(done, total)
    kept: list[Record] = []
    known = ImageSource(None, result["image_id"], image.owner)
    for _, batches in work:
        found: list[Record] = []
        size = sum(map(_size, kept))
        for batch in batches:
            of_batch = await _records(segmenter, known, image, batch)
            size += sum(map(_size, of_batch))
            if size > max_answer_bytes:
                raise AnswerTooLarge.of(max_answer_bytes)
            found += of_batch
            done += 1
            if done < total:
                yield Progress(done, total)
        scores = [record["predicted_iou"] for record in found]
        kept += await asyncio.to_thread(distinct, found, scores, request.box_nms_thresh)
    kept = await asyncio.to_thread(_without_repeats, kept, request, len(crops))
    for record in kept:
        for name in INTERNAL:
            del record[name]
    yield Progress(total, total, {**result, "masks": kept})


async def _records(segmenter: Segmenter, known: ImageSource, image: ImageSource, batch: GridBatch) -> list[Record]:
    """The records of a batch, by the image's id; by the image as it came, should that be forgotten by now."""
    try:
        return await segmenter.records(known, batch)
    except RejectedByModel as error:
        if error.problem().slug != NOT_CACHED or image.file is None:
            raise
    return await segmenter.records(image, batch)


async def result_of(steps: AsyncIterator[Progress], timeout: float) -> bytes:
    """The result that the last step comes with, as JSON.

    Raises:
        InferenceTimeout: it takes more seconds than `timeout`.
        ServiceError: as `everything`.
    """

    async def last() -> bytes:
        result: dict[str, Any] | None = None
        async for step in steps:
            result = step.result
        return await asyncio.to_thread(orjson.dumps, result)

    try:
        return await asyncio.wait_for(last(), timeout)
    except asyncio.TimeoutError:
        advice = "ask with progress true, which may take as long as it needs, or with fewer points_per_side"
        raise InferenceTimeout(f"no answer within {timeout:g} s: {advice}") from None


def crop_boxes(size_hw: tuple[int, int], layers: int, overlap_ratio: float) -> list[tuple[Box, int]]:
    """The whole image as layer 0, and for each further layer i its 2^i x 2^i overlapping crops.

    Args:
        size_hw: height and width of the image.
        layers: beside layer 0.
        overlap_ratio: of crops of the first layer, as a share of the shorter side; halved with each further layer.

    Returns:
        Pairs of x0, y0, x1, y1 in pixels and the layer.
    """
    height, width = size_hw
    boxes: list[tuple[Box, int]] = [((0, 0, width, height), 0)]
    for layer in range(1, layers + 1):
        count = 2**layer
        overlap = int(overlap_ratio * min(size_hw) * 2 / count)
        wide, high = (math.ceil((overlap * (count - 1) + side) / count) for side in (width, height))
        boxes += [
            ((x0, y0, min(x0 + wide, width), min(y0 + high, height)), layer)
            for x0 in ((wide - overlap) * column for column in range(count))
            for y0 in ((high - overlap) * row for row in range(count))
            if x0 < width and y0 < height
        ]
    return boxes


def grid(box: Box, per_side: int) -> npt.NDArray[np.float32]:
    """(per_side^2, 2) float32, x then y: the middles of a box's per_side x per_side equal parts, row by row.

    Args:
        box: x0, y0, x1, y1.
        per_side: at least 1.
    """
    middles = (np.arange(per_side) + 0.5) / per_side
    x, y = np.meshgrid(box[0] + middles * (box[2] - box[0]), box[1] + middles * (box[3] - box[1]))
    points: npt.NDArray[np.float32] = np.stack([x.ravel(), y.ravel()], axis=1).astype(np.float32)
    return points


def _batches(crop: Box, request: EverythingRequest, layer: int, model_version: int) -> list[GridBatch]:
    points = grid(crop, _per_side(request, layer))
    return [
        GridBatch(
            crop,
            points[start : start + POINTS_PER_BATCH],
            request.pred_iou_thresh,
            request.stability_score_thresh,
            request.stability_score_offset,
            request.min_mask_region_area,
            model_version,
        )
        for start in range(0, len(points), POINTS_PER_BATCH)
    ]


def _per_side(request: EverythingRequest, layer: int) -> int:
    downscaled: int = request.points_per_side // request.crop_n_points_downscale_factor**layer
    return max(1, downscaled)


def _size(record: Record) -> int:
    """Bytes of a record, about."""
    counts: str = record["segmentation"]["counts"]
    return RECORD_BYTES + len(counts)


def _without_repeats(records: list[Record], request: EverythingRequest, crops: int) -> list[Record]:
    """Remove masks found in several crops, and masks that have become alike by losing their small regions."""
    if crops > 1:
        smallness = [1 / (record["crop_box"][2] * record["crop_box"][3]) for record in records]
        records = distinct(records, smallness, request.crop_nms_thresh)
    if request.min_mask_region_area:
        for record in records:
            x, y, width, height = record["bbox"]
            record["box"] = [x, y, x + width, y + height]
        untouched = [0.0 if record["tidied"] else 1.0 for record in records]
        records = distinct(records, untouched, max(request.box_nms_thresh, request.crop_nms_thresh))
    return records


def distinct(records: list[Record], priority: list[float], threshold: float) -> list[Record]:
    """The records in falling priority without those whose box has an IoU above `threshold` with an earlier one's."""
    if not records:
        return []
    boxes = np.array([record["box"] for record in records], np.float32)
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    left = np.argsort(-np.array(priority), kind="stable")
    kept = []
    while len(left):
        first, left = left[0], left[1:]
        kept.append(records[first])
        low, high = np.maximum(boxes[first, :2], boxes[left, :2]), np.minimum(boxes[first, 2:], boxes[left, 2:])
        shared = np.prod(np.clip(high - low, 0, None), axis=1)
        left = left[shared <= threshold * (areas[first] + areas[left] - shared)]
    return kept
