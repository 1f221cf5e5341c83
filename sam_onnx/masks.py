"""From the decoder's logits to masks of the image as a graph: up-sampling, filters, boxes and bits.

For devices on which it takes less time than the CPU's path, `orchestrator.masks`, whose masks it
makes. Coefficients of bilinear scaling: OpenCV's `resize` (`modules/imgproc/src/resize.cpp`).
Filters: Segment Anything's automatic mask generator.
"""

import numpy as np
import onnx
import onnx.helper
import spox
import spox.opset.ai.onnx.v20 as op
from spox import Tensor, Var

from sam_onnx.descriptor import SQUASH
from sam_onnx.images import FRAME_SIDE
from sam_onnx.nodes import argument_like, ints, item, length_of, places, reshape
from sam_onnx.tensors import Array
from sam_onnx.upscaling import MASK_SIDE

BITS = 8
INPUTS: dict[str, tuple[type[np.generic], tuple[int | str, ...]]] = {
    "wanted_masks": (np.int64, ("K",)),
    "frame_hw": (np.int32, (2,)),
    "size_hw": (np.int32, (2,)),
    "mask_threshold": (np.float32, (1,)),
    "stability_score_offset": (np.float32, (1,)),
    "pred_iou_thresh": (np.float64, (1,)),
    "stability_score_thresh": (np.float64, (1,)),
}
"""Inputs besides the decoder's: type and shape by name."""


def with_masks(decoder: onnx.ModelProto, resize: str) -> onnx.ModelProto:
    """Return a decoder that makes the masks of the image itself.

    Inputs besides the decoder's: `wanted_masks` (K,) int64, which of a prompt's masks to return;
    `frame_hw` and `size_hw` (2,) int32, height and width of the area of the 1024-frame that shows
    the image, and of the image's masks; `mask_threshold` and `stability_score_offset` (1,) float32,
    in logits; `pred_iou_thresh`, a lower bound, and `stability_score_thresh`, the least value, (1,)
    float64. Masks below them are left out.

    Outputs, for the M masks that are left: `mask_indices` (M,) int64, `prompt * K + position in
    wanted_masks`, ascending; `scores` (M,) float32; `stability_scores` (M,) float64, 0 for an empty
    mask; `areas` (M,) int32; `boxes_xyxy` (M, 4) int32, right and bottom exclusive, zeros if empty;
    `mask_bits` (M, H, W / 8 rounded up) uint8, the first pixel in the highest bit, and
    `column_bits` (M, W, H / 8 rounded up), the same by columns; `mask_logits` (M, 256, 256)
    float32. And `is_finite` (1,) bool: whether all logits and scores of the decoder
    are finite.

    Args:
        decoder: the decoder; its weights may be inputs.
        resize: the descriptor's rule. Squashed images are scaled in one step, as in SAM 2's
            predictor, others by way of the frame.
    """
    prompt = {value.name: argument_like(value) for value in decoder.graph.input}
    added = {name: spox.argument(Tensor(*signature)) for name, signature in INPUTS.items()}
    decoded = spox.inline(decoder)(**prompt)

    logits = op.gather(decoded["low_res_masks"], added["wanted_masks"], axis=1)
    logits = reshape(logits, -1, MASK_SIDE, MASK_SIDE)
    scores = op.gather(decoded["iou_predictions"], added["wanted_masks"], axis=1)
    scores = reshape(scores, -1)
    is_finite = op.and_(_is_finite(logits), _is_finite(scores))

    is_good = op.greater(op.cast(scores, to=np.float64), added["pred_iou_thresh"])
    good = reshape(op.non_zero(is_good), -1)
    scaled = _upsampled(op.gather(logits, good), added["frame_hw"], added["size_hw"], resize)

    stability = _stability(scaled, added["stability_score_offset"])
    is_stable = op.greater_or_equal(stability, added["stability_score_thresh"])
    stable = reshape(op.non_zero(is_stable), -1)
    indices = op.gather(good, stable)
    masks = op.greater(op.gather(scaled, stable, axis=1), added["mask_threshold"])
    areas, boxes = _areas_and_boxes(masks)
    outputs = {
        "mask_indices": indices,
        "scores": op.gather(scores, indices),
        "stability_scores": op.gather(stability, stable),
        "areas": areas,
        "boxes_xyxy": boxes,
        "mask_bits": op.transpose(_packed(masks), perm=[1, 0, 2]),
        "column_bits": _packed(op.transpose(masks, perm=[1, 2, 0])),
        "mask_logits": op.gather(logits, indices),
        "is_finite": is_finite,
    }
    return spox.build(prompt | added, outputs)


def _is_finite(values: Var) -> Var:
    """Return (1,) bool: infinity minus itself is not a number, which equals nothing."""
    total = reshape(op.reduce_sum(op.sub(values, values)), 1)
    return op.equal(total, op.const(np.float32(0)))


def _upsampled(logits: Var, frame_hw: Var, size_hw: Var, resize: str) -> Var:
    """Scale (M, 256, 256) to the image, (H, M, W), as `orchestrator.masks.upsample` does.

    Both of its steps are linear, so that one product for each axis does both. The masks lie between
    the axes of the image from here on: so the products are of two matrices, for any M.
    """
    frame = op.const(np.eye(MASK_SIDE, dtype=np.float32) if resize == SQUASH else to_frame())
    side = op.const(np.array([MASK_SIDE], np.int32))
    before = [side, side] if resize == SQUASH else [item(frame_hw, axis) for axis in (0, 1)]
    rows, columns = (_coefficients(frame, before[axis], item(size_hw, axis)) for axis in (0, 1))
    masks, height, width = length_of(logits, 0), length_of(rows, 0), length_of(columns, 0)
    lines = op.transpose(logits, perm=[1, 0, 2])
    wide = op.matmul(reshape(lines, -1, MASK_SIDE), op.transpose(columns, perm=[1, 0]))
    shape = op.concat([ints(MASK_SIDE), op.mul(masks, width)], axis=0)
    scaled = op.matmul(rows, op.reshape(wide, shape, allowzero=True))
    shape = op.concat([height, masks, width], axis=0)
    return op.reshape(scaled, shape, allowzero=True)


def _coefficients(frame: Var, before: Var, after: Var) -> Var:
    """Return the matrix (after, 256) that scales an axis of the logits to the image.

    Args:
        frame: (F, 256) float32, the matrix that scales it to the frame.
        before: (1,) int32, length in the frame of what shows the image.
        after: (1,) int32, length in the image.
    """
    scale = op.div(op.cast(before, to=np.float64), op.cast(after, to=np.float64))
    half = op.const(np.float64(0.5))
    centres = op.sub(op.mul(op.add(places(after), half), scale), half)
    centres = op.cast(op.cast(centres, to=np.float32), to=np.float64)  # as OpenCV keeps them
    last = op.cast(op.sub(before, op.const(np.int32(1))), to=np.float64)
    centres = op.max([op.min([centres, last]), op.const(np.float64(0))])

    low = op.floor(centres)
    high = op.min([op.add(low, op.const(np.float64(1))), last])
    low_rows, high_rows = (
        op.cast(op.gather(frame, op.cast(index, to=np.int64)), to=np.float64)
        for index in (low, high)
    )
    high_weight = op.unsqueeze(op.sub(centres, low), ints(1))
    low_weight = op.sub(op.const(np.float64(1)), high_weight)
    rows = op.add(op.mul(low_rows, low_weight), op.mul(high_rows, high_weight))
    return op.cast(rows, to=np.float32)


def to_frame() -> Array:
    """Return the matrix (1024, 256) float32 that scales an axis of the logits to the frame."""
    centres = (np.arange(FRAME_SIDE) + 0.5) * MASK_SIDE / FRAME_SIDE - 0.5
    distances = np.abs(np.clip(centres, 0, MASK_SIDE - 1)[:, None] - np.arange(MASK_SIDE))
    return np.asarray(np.maximum(1 - distances, 0), np.float32)


def _stability(logits: Var, offset: Var) -> Var:
    """Return (M,) float64: the area above the higher threshold as a share of the one above the
    lower, 0 if that is empty.
    """
    larger, smaller = (
        _total(_row_counts(op.greater(logits, threshold))) for threshold in (op.neg(offset), offset)
    )
    return op.div(smaller, op.max([larger, op.const(np.float64(1))]))


def _row_counts(masks: Var) -> Var:
    """Return the number of pixels in each row, (H, M) float32, of (H, M, W) bool."""
    return op.reduce_sum(op.cast(masks, to=np.float32), ints(2), keepdims=False)


def _total(counts: Var) -> Var:
    """Return the sums of (H, M), (M,) float64: float32 cannot hold large areas."""
    return op.reduce_sum(op.cast(counts, to=np.float64), ints(0), keepdims=False)


def _areas_and_boxes(masks: Var) -> tuple[Var, Var]:
    """Return the areas (M,) and boxes (M, 4), int32, of masks (H, M, W) bool."""
    rows = _row_counts(masks)
    columns = op.reduce_max(op.cast(masks, to=np.float32), ints(0), keepdims=False)
    top, bottom = _extent(op.transpose(rows, perm=[1, 0]))
    left, right = _extent(columns)
    boxes = op.cast(op.concat([left, top, right, bottom], axis=1), to=np.int32)
    return op.cast(_total(rows), to=np.int32), boxes


def _extent(counts: Var) -> tuple[Var, Var]:
    """Return the index of the first value above 0 of (M, L) and one past the last, (M, 1) each;
    0 and 0 if there is none.
    """
    zero = op.const(np.float32(0))
    length = length_of(counts, 1)
    index = op.cast(places(length), to=np.float32)
    is_set = op.greater(counts, zero)
    past_index = op.add(index, op.const(np.float32(1)))
    past = op.reduce_max(op.where(is_set, past_index, zero), ints(1))
    none = op.cast(length, to=np.float32)
    first = op.reduce_min(op.where(is_set, index, none), ints(1))
    return op.min([first, past]), past


def _packed(pixels: Var) -> Var:
    """Return (A, B, L / 8 rounded up) uint8 of (A, B, L) bool: the first pixel in the highest
    bit.
    """
    length = length_of(pixels, 2)
    missing = op.mod(op.neg(length), ints(BITS))
    padding = op.concat([ints(0, 0, 0, 0, 0), missing], axis=0)
    padded = op.pad(op.cast(pixels, to=np.uint8), padding)
    groups = op.div(op.add(length, missing), ints(BITS))
    shape = op.concat([length_of(pixels, 0), length_of(pixels, 1), groups, ints(BITS)], axis=0)
    # A product in float32, which has a place for all values up to 255.
    eights = op.cast(op.reshape(padded, shape, allowzero=True), to=np.float32)
    powers = op.const((2.0 ** np.arange(BITS - 1, -1, -1)).astype(np.float32)[:, None])
    return op.cast(op.squeeze(op.matmul(eights, powers), ints(3)), to=np.uint8)
