"""Names, types and shapes of all tensors between the service and its models, and what values mean.

All Python that may import the orchestrator takes them from here. Tests compare each config.pbtxt
and the graphs that `sam_onnx` builds with them.
"""

from dataclasses import dataclass
from typing import Literal

SEGMENT = "mobile_sam"
"""Segments any image."""
SEGMENT_CACHED = "mobile_sam_cached"
"""The same for images whose embedding is cached; it rejects others."""
SEGMENT_COSTLY = "mobile_sam_costly"
"""The same for costly requests. The two others leave these to it when `call` says that they must
not be `costly`."""
EVERYTHING = "mobile_sam_everything"
"""Computes a batch of automatic masks."""
ENCODER, DECODER = "mobile_sam_encoder", "mobile_sam_decoder"
"""The networks, which the models above call."""

NEGATIVE, POSITIVE, BOX_TOP_LEFT, BOX_BOTTOM_RIGHT = 0, 1, 2, 3
"""Labels of points, as in Segment Anything."""
NO_POINT = -2
"""Label of the rest of an object's row, which has fewer points than another object's."""
PADDING_POINT = -1
"""Label of the point that the decoder wants after the points of an object without a box."""
FRAME_SIDE = 1024
"""Side in pixels of the square in which the decoder takes points, and of most encoders' input."""
MASK_SIDE = 256
"""Height and width of the decoder's masks, and of earlier ones that are refined."""
CANDIDATES = 3
"""Masks of an ambiguous prompt; the decoder returns them after the single mask."""

DataType = Literal["BYTES", "BOOL", "UINT8", "INT32", "INT64", "FP16", "FP32", "FP64"]


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

POINTS_XY = Tensor("point_coords", "FP32", (-1, -1, 2))
"""Points of each object, x then y, in pixels of the displayed image."""
LABELS = Tensor("point_labels", "INT32", (-1, -1))
MASK_INPUT = Tensor("mask_input", "FP32", (-1, MASK_SIDE, MASK_SIDE))
MASK_INPUT_OBJECT = Tensor("mask_input_object", "INT32", (-1,))
SEGMENT_INPUTS = (CALL, INPUT_IMAGE, POINTS_XY, LABELS, MASK_INPUT, MASK_INPUT_OBJECT)

MASK = Tensor("mask", "BYTES", (1,))
PICTURE = Tensor("picture", "BYTES", (1,))
RESULT = Tensor("result", "BYTES", (1,))
SEGMENT_OUTPUTS = (MASK, PICTURE, RESULT, OUTCOME)

GRID_POINTS_XY = Tensor("point_coords", "FP32", (-1, 2))
"""Points of a grid, x then y, in pixels of the displayed image."""
EVERYTHING_INPUTS = (CALL, INPUT_IMAGE, GRID_POINTS_XY)

RECORDS = Tensor("records", "BYTES", (1,))
EVERYTHING_OUTPUTS = (RECORDS, OUTCOME)

MODELS = {
    **dict.fromkeys((SEGMENT, SEGMENT_CACHED, SEGMENT_COSTLY), (SEGMENT_INPUTS, SEGMENT_OUTPUTS)),
    EVERYTHING: (EVERYTHING_INPUTS, EVERYTHING_OUTPUTS),
}
"""Inputs and outputs of each of the orchestrator's models."""

IMAGES = Tensor("images", "UINT8", (FRAME_SIDE, FRAME_SIDE, 3))
"""RGB, padded right and bottom. Some weights have a frame with another side."""
SIZES_HW = Tensor("sizes_hw", "INT32", (2,))
"""Height and width of the valid area of each image."""
IMAGE_EMBEDDINGS = Tensor("image_embeddings", "FP16", (64, 64, 256))
"""The embedding by MobileSAM and Segment Anything. Other weights have other tensors, as their
descriptor says."""
ENCODER_INPUTS, ENCODER_OUTPUTS = (IMAGES, SIZES_HW), (IMAGE_EMBEDDINGS,)
"""Tensors of the encoder, without their batch of images."""

FRAME_POINTS_XY = Tensor("point_coords", "FP32", (-1, -1, 2))
"""Points of each object, x then y, in pixels of the frame."""
FRAME_LABELS = Tensor("point_labels", "FP32", (-1, -1))
FRAME_MASK_INPUT = Tensor("mask_input", "FP32", (-1, 1, MASK_SIDE, MASK_SIDE))
HAS_MASK_INPUT = Tensor("has_mask_input", "FP32", (-1,))
"""1 where an object has a mask to refine, otherwise 0."""
DECODER_INPUTS = (
    Tensor(IMAGE_EMBEDDINGS.name, IMAGE_EMBEDDINGS.datatype, (1, *IMAGE_EMBEDDINGS.shape)),
    FRAME_POINTS_XY,
    FRAME_LABELS,
    FRAME_MASK_INPUT,
    HAS_MASK_INPUT,
)
LOW_RES_MASKS = Tensor("low_res_masks", "FP32", (-1, 1 + CANDIDATES, MASK_SIDE, MASK_SIDE))
"""Logits: the single mask, then the candidates."""
SINGLE_MASKS = Tensor("single_masks", "FP32", (-1, 1, MASK_SIDE, MASK_SIDE))
"""Only the first of these: a quarter of the bytes."""
IOU_PREDICTIONS = Tensor("iou_predictions", "FP32", (-1, 1 + CANDIDATES))
DECODER_OUTPUTS = (LOW_RES_MASKS, SINGLE_MASKS, IOU_PREDICTIONS)

NETWORKS = {
    ENCODER: (ENCODER_INPUTS, ENCODER_OUTPUTS),
    DECODER: (DECODER_INPUTS, DECODER_OUTPUTS),
}
"""Inputs and outputs of each network."""

PIXELS = Tensor("pixels", "UINT8", (-1, -1, 3))
"""RGB, the displayed image."""
BOX_XYXY = Tensor("box_xyxy", "FP32", (4,))
"""Part of the pixels to encode."""
FRAME_HW = Tensor("frame_hw", "INT32", (2,))
"""Height and width of an image, or of a part, in the frame."""
GPU_ENCODER_INPUTS = (PIXELS, BOX_XYXY, FRAME_HW)
GPU_ENCODER_OUTPUTS = DECODER_INPUTS[:1]

WANTED_MASKS = Tensor("wanted_masks", "INT64", (-1,))
"""Indices of the K masks to return of each prompt's, which are in the order of `LOW_RES_MASKS`."""
SIZE_HW = Tensor("size_hw", "INT32", (2,))
"""Height and width of the masks to make."""
MASK_THRESHOLD = Tensor("mask_threshold", "FP32", (1,))
STABILITY_OFFSET = Tensor("stability_score_offset", "FP32", (1,))
"""Distance in logits of both thresholds of the stability score from 0."""
MIN_SCORE = Tensor("pred_iou_thresh", "FP64", (1,))
"""Masks with this score or a lower one are left out."""
MIN_STABILITY = Tensor("stability_score_thresh", "FP64", (1,))
"""Masks with a lower stability score are left out."""
GPU_DECODER_INPUTS = (
    *DECODER_INPUTS,
    WANTED_MASKS,
    FRAME_HW,
    SIZE_HW,
    MASK_THRESHOLD,
    STABILITY_OFFSET,
    MIN_SCORE,
    MIN_STABILITY,
)
MASK_INDICES = Tensor("mask_indices", "INT64", (-1,))
"""For each mask that is left: prompt * K + index in `WANTED_MASKS`."""
SCORES = Tensor("scores", "FP32", (-1,))
STABILITY_SCORES = Tensor("stability_scores", "FP64", (-1,))
AREAS = Tensor("areas", "INT32", (-1,))
BOXES_XYXY = Tensor("boxes_xyxy", "INT32", (-1, 4))
"""Right and bottom exclusive; zeros around an empty mask."""
MASK_BITS = Tensor("mask_bits", "UINT8", (-1, -1, -1))
"""Masks (H, W / 8 rounded up), the first pixel in the highest bit."""
COLUMN_BITS = Tensor("column_bits", "UINT8", (-1, -1, -1))
"""The same by columns, (W, H / 8 rounded up)."""
MASK_LOGITS = Tensor("mask_logits", "FP32", (-1, MASK_SIDE, MASK_SIDE))
IS_FINITE = Tensor("is_finite", "BOOL", (1,))
"""Whether all logits and scores of a run are finite."""
GPU_DECODER_OUTPUTS = (
    MASK_INDICES,
    SCORES,
    STABILITY_SCORES,
    AREAS,
    BOXES_XYXY,
    MASK_BITS,
    COLUMN_BITS,
    MASK_LOGITS,
    IS_FINITE,
)

GPU_NETWORKS = {
    ENCODER: (GPU_ENCODER_INPUTS, GPU_ENCODER_OUTPUTS),
    DECODER: (GPU_DECODER_INPUTS, GPU_DECODER_OUTPUTS),
}
"""The same of the networks that scale images and make masks themselves, which GPUs run."""
