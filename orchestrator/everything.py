"""A batch of automatic masks: a grid of clicks on one crop of an image, and the masks that reach the thresholds.

The service sends one batch after another and combines the records. So clicks wait for one batch at most, not for a
whole image, and a client that disconnects costs one batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from orchestrator import images, prompts
from orchestrator.call import Call, Part
from orchestrator.grid import Box, Thresholds, record
from orchestrator.masks import json_list, upsample
from orchestrator.pipeline import Pipeline
from orchestrator.problems import Rejected
from orchestrator.stages import RECORD, UPSAMPLE

OUTPUTS = ("records",)


def records(pipeline: Pipeline, call: Call) -> tuple[Part]:
    """Return the records of a batch as a JSON list."""
    image = pipeline.find(call)
    crop = checked_crop(call.read("crop_box"), image.size_hw)
    part = pipeline.embeddings.crop(image, crop)
    points_xy = call.read("point_coords")
    assert points_xy is not None  # not optional in config.pbtxt
    thresholds = Thresholds(
        float(call.read_one("pred_iou_thresh", pipeline.thresholds["pred_iou_thresh"])),
        float(call.read_one("stability_score_thresh", pipeline.thresholds["stability_score_thresh"])),
        float(call.read_one("stability_score_offset")),
        int(call.read_one("min_mask_region_area")),
    )
    frame_hw = images.frame_size_hw(part.size_hw)
    in_crop: npt.NDArray[np.float32] = (points_xy - np.array(crop[:2], np.float32))[:, None]
    labels = np.full(in_crop.shape[:2], prompts.POSITIVE, np.int32)
    no_mask = prompts.mask_inputs(None, None, len(in_crop))
    decoded = pipeline.decode(part, in_crop, labels, *no_mask, candidates=True)
    good = (
        (point_xy, low_res, score)
        for point_xy, (masks, scores) in zip(points_xy, decoded, strict=True)
        for low_res, score in zip(masks, scores, strict=True)
        if score > thresholds.pred_iou_thresh
    )
    lines = []
    for point_xy, low_res, score in good:
        with image.stages(UPSAMPLE):
            logits = upsample(low_res, frame_hw, part.size_hw)
        with image.stages(RECORD):
            found = record(logits, float(score), point_xy, crop=crop, size_hw=image.size_hw, thresholds=thresholds)
        if found is not None:
            lines.append(orjson.dumps(found))
    return (json_list(lines),)


def checked_crop(box: Any, size_hw: tuple[int, int]) -> Box:
    """Return a crop as integers x0, y0, x1, y1.

    Raises:
        Rejected: it is not inside the image.
    """
    x0, y0, x1, y1 = (int(side) for side in box)
    if not (0 <= x0 < x1 <= size_hw[1] and 0 <= y0 < y1 <= size_hw[0]):
        expected = f"a box inside the image: 0 <= x0 < x1 <= {size_hw[1]}, 0 <= y0 < y1 <= {size_hw[0]}"
        error = {"field": "crop_box", "expected": expected, "got": str([x0, y0, x1, y1])}
        raise Rejected(422, "invalid-request", "The request is not valid", [error])
    return x0, y0, x1, y1
