"""What crosses the seam between the service and its models: tensors, and what their values mean.

A test compares each config.pbtxt with them.
"""

from dataclasses import dataclass
from typing import Literal

SEGMENT = "mobile_sam"
"""Segments any image."""
SEGMENT_CACHED = "mobile_sam_cached"
"""The same for images whose embedding is cached; it rejects others."""
SEGMENT_COSTLY = "mobile_sam_costly"
"""The same for costly requests, which the two others leave to it when `call` says that it must not be `costly`."""
EVERYTHING = "mobile_sam_everything"
"""Computes a batch of automatic masks."""

NEGATIVE, POSITIVE, BOX_TOP_LEFT, BOX_BOTTOM_RIGHT = 0, 1, 2, 3
"""Labels of points, as in Segment Anything."""
NO_POINT = -2
"""Label of the rest of an object's row, which has fewer points than another object's."""
PADDING_POINT = -1
"""Label of the point that the decoder wants after the points of an object without a box."""
MASK_SIDE = 256
"""Height and width of the decoder's masks, and of earlier ones that are refined."""

DataType = Literal["BYTES", "INT32", "FP32"]


@dataclass(frozen=True)
class Tensor:
    """Name, Triton data type and shape (-1 where it varies) of an input or output."""

    name: str
    datatype: DataType
    shape: tuple[int, ...]


CALL = Tensor("call", "BYTES", (1,))
"""JSON of the request: the options and the image id, the file with large values, the deadline."""
OUTCOME = Tensor("outcome", "BYTES", (1,))
"""JSON: `orchestrator.call.Outcome`."""
INPUT_IMAGE = Tensor("input_image", "BYTES", (1,))

POINT_COORDS = Tensor("point_coords", "FP32", (-1, -1, 2))
POINT_LABELS = Tensor("point_labels", "INT32", (-1, -1))
MASK_INPUT = Tensor("mask_input", "FP32", (-1, MASK_SIDE, MASK_SIDE))
MASK_INPUT_OBJECT = Tensor("mask_input_object", "INT32", (-1,))
SEGMENT_INPUTS = (CALL, INPUT_IMAGE, POINT_COORDS, POINT_LABELS, MASK_INPUT, MASK_INPUT_OBJECT)

MASK = Tensor("mask", "BYTES", (1,))
PICTURE = Tensor("picture", "BYTES", (1,))
RESULT = Tensor("result", "BYTES", (1,))
SEGMENT_OUTPUTS = (MASK, PICTURE, RESULT, OUTCOME)

GRID_COORDS = Tensor("point_coords", "FP32", (-1, 2))
EVERYTHING_INPUTS = (CALL, INPUT_IMAGE, GRID_COORDS)

RECORDS = Tensor("records", "BYTES", (1,))
EVERYTHING_OUTPUTS = (RECORDS, OUTCOME)

MODELS = {
    **dict.fromkeys((SEGMENT, SEGMENT_CACHED, SEGMENT_COSTLY), (SEGMENT_INPUTS, SEGMENT_OUTPUTS)),
    EVERYTHING: (EVERYTHING_INPUTS, EVERYTHING_OUTPUTS),
}
"""Inputs and outputs of each model."""
