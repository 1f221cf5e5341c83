"""Names, types and shapes of the Triton models' tensors. A test compares each config.pbtxt with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SEGMENT = "mobile_sam"
"""Segments any image."""
SEGMENT_CACHED = "mobile_sam_cached"
"""The same for images whose embedding is cached; it rejects others."""
SEGMENT_COSTLY = "mobile_sam_costly"
"""The same for costly requests, which the two others reject when `exchange` says `light`."""
EVERYTHING = "mobile_sam_everything"
"""Computes a batch of automatic masks."""

DataType = Literal["BYTES", "BOOL", "INT32", "INT64", "FP32"]


@dataclass(frozen=True)
class Tensor:
    """Name, Triton data type and shape (-1 where it varies) of an input or output."""

    name: str
    datatype: DataType
    shape: tuple[int, ...]


EXCHANGE = Tensor("exchange", "BYTES", (1,))
"""JSON of `utils.triton.exchange`: the file with large values, and the deadline."""
SPOOLED = Tensor("spooled", "INT64", (-1,))
"""Size in bytes of each output that was written to that file, one after the other; 0 for inline outputs."""
INPUT_IMAGE = Tensor("input_image", "BYTES", (1,))
IMAGE_ID = Tensor("image_id", "BYTES", (1,))
IMAGE_OWNER = Tensor("image_owner", "BYTES", (1,))
PROBLEM = Tensor("problem", "BYTES", (1,))

POINT_COORDS = Tensor("point_coords", "FP32", (-1, -1, 2))
POINT_LABELS = Tensor("point_labels", "INT32", (-1, -1))
MASK_INPUT = Tensor("mask_input", "FP32", (-1, 256, 256))
MASK_INPUT_OBJECT = Tensor("mask_input_object", "INT32", (-1,))
MULTIMASK_OUTPUT = Tensor("multimask_output", "BOOL", (1,))
MASK_FORMAT = Tensor("mask_format", "BYTES", (1,))
SEGMENTED_IMAGE = Tensor("segmented_image", "BYTES", (1,))
LOW_RES_MASK = Tensor("low_res_mask", "BOOL", (1,))
SEGMENT_INPUTS = (
    EXCHANGE,
    INPUT_IMAGE,
    IMAGE_ID,
    IMAGE_OWNER,
    POINT_COORDS,
    POINT_LABELS,
    MASK_INPUT,
    MASK_INPUT_OBJECT,
    MULTIMASK_OUTPUT,
    MASK_FORMAT,
    SEGMENTED_IMAGE,
    LOW_RES_MASK,
)

MASK = Tensor("mask", "BYTES", (1,))
PICTURE = Tensor("picture", "BYTES", (1,))
RESULT = Tensor("result", "BYTES", (1,))
SEGMENT_OUTPUTS = (MASK, PICTURE, RESULT, SPOOLED, PROBLEM)

CROP_BOX = Tensor("crop_box", "INT32", (4,))
GRID_COORDS = Tensor("point_coords", "FP32", (-1, 2))
PRED_IOU_THRESH = Tensor("pred_iou_thresh", "FP32", (1,))
STABILITY_SCORE_THRESH = Tensor("stability_score_thresh", "FP32", (1,))
STABILITY_SCORE_OFFSET = Tensor("stability_score_offset", "FP32", (1,))
MIN_MASK_REGION_AREA = Tensor("min_mask_region_area", "INT32", (1,))
EVERYTHING_INPUTS = (
    EXCHANGE,
    INPUT_IMAGE,
    IMAGE_ID,
    IMAGE_OWNER,
    CROP_BOX,
    GRID_COORDS,
    PRED_IOU_THRESH,
    STABILITY_SCORE_THRESH,
    STABILITY_SCORE_OFFSET,
    MIN_MASK_REGION_AREA,
)

RECORDS = Tensor("records", "BYTES", (1,))
EVERYTHING_OUTPUTS = (RECORDS, SPOOLED, PROBLEM)

MODELS = {
    SEGMENT: (SEGMENT_INPUTS, SEGMENT_OUTPUTS),
    SEGMENT_CACHED: (SEGMENT_INPUTS, SEGMENT_OUTPUTS),
    SEGMENT_COSTLY: (SEGMENT_INPUTS, SEGMENT_OUTPUTS),
    EVERYTHING: (EVERYTHING_INPUTS, EVERYTHING_OUTPUTS),
}
"""Inputs and outputs of each model."""
