"""Inputs and outputs of the encoder and the decoder, wherever these run.

From prompts to masks: `decoder_inputs` scales points into the frame and pads them, `decode` runs
the decoder, and `orchestrator.masks.upsample` scales its logits to the image.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.arrays import Array, Floats, Labels
from orchestrator.tensors import (
    BOX_TOP_LEFT,
    BOX_XYXY,
    CANDIDATES,
    DECODER,
    FRAME_HW,
    FRAME_LABELS,
    FRAME_MASK_INPUT,
    FRAME_POINTS_XY,
    HAS_MASK_INPUT,
    IMAGES,
    IOU_PREDICTIONS,
    IS_FINITE,
    LOW_RES_MASKS,
    MASK_SIDE,
    MASK_THRESHOLD,
    MIN_SCORE,
    MIN_STABILITY,
    NO_POINT,
    PADDING_POINT,
    PIXELS,
    SINGLE_MASKS,
    SIZE_HW,
    SIZES_HW,
    STABILITY_OFFSET,
    WANTED_MASKS,
    Tensor,
)

SINGLE_OUTPUT, CANDIDATE_OUTPUTS = slice(0, 1), slice(1, 1 + CANDIDATES)
"""The decoder's outputs for unambiguous and for ambiguous prompts."""

RunDecoder = Callable[[dict[str, Array], list[str]], Sequence[Array]]
"""Runs the decoder: takes inputs by name and the names of the outputs."""


class DecoderError(Exception):
    """The decoder returned something that cannot be a mask."""


@dataclass(frozen=True)
class MaskRule:
    """Which masks a decoder for GPUs makes, and how."""

    wanted: slice
    """Which of the decoder's outputs, `SINGLE_OUTPUT` or `CANDIDATE_OUTPUTS`."""
    size_hw: tuple[int, int] = (1, 1)
    """Height and width of the masks."""
    valid_hw: tuple[int, int] | None = None
    """As for `orchestrator.masks.upsample`."""
    threshold: float = 0.0
    """Logit above which a pixel is inside."""
    offset: float = 1.0
    """Distance of both thresholds of the stability score from 0, in logits."""
    min_score: float = -math.inf
    """Masks with this score or a lower one are left out."""
    min_stability: float = 0.0
    """Masks with a lower stability score are left out."""

    @property
    def count(self) -> int:
        """Return the masks of each prompt."""
        return int(self.wanted.stop - self.wanted.start)

    def inputs(self) -> dict[str, Array]:
        """Return the decoder's inputs by name."""
        return {
            WANTED_MASKS.name: np.arange(self.wanted.start, self.wanted.stop, dtype=np.int64),
            FRAME_HW.name: np.array(self.valid_hw or (MASK_SIDE, MASK_SIDE), np.int32),
            SIZE_HW.name: np.array(self.size_hw, np.int32),
            MASK_THRESHOLD.name: np.array([self.threshold], np.float32),
            STABILITY_OFFSET.name: np.array([self.offset], np.float32),
            MIN_SCORE.name: np.array([self.min_score], np.float64),
            MIN_STABILITY.name: np.array([self.min_stability], np.float64),
        }


def encoder_inputs(
    pixels: Array,
    size_hw: tuple[int, int],
    box_xyxy: tuple[float, float, float, float] | None = None,
) -> dict[str, Array]:
    """Return the encoder's inputs for one image.

    Args:
        pixels: (S, S, 3) uint8 RGB, the frame; with a box (H, W, 3), the image.
        size_hw: height and width of the frame's valid area.
        box_xyxy: part of the image, for an encoder that scales it to that area.
    """
    if box_xyxy is None:
        return {IMAGES.name: pixels[None], SIZES_HW.name: np.array([size_hw], np.int32)}
    return {
        PIXELS.name: pixels,
        BOX_XYXY.name: np.array(box_xyxy, np.float32),
        FRAME_HW.name: np.array(size_hw, np.int32),
    }


def decode(
    run: RunDecoder,
    embedding: Mapping[str, Array],
    points_xy: Floats,
    labels: Labels,
    *,
    size_hw: tuple[int, int],
    frame_hw: tuple[int, int],
    masks: tuple[Floats, Floats] | None = None,
    candidates: bool = False,
) -> tuple[Floats, Floats]:
    """Run the decoder once, on N prompts.

    Args:
        run: runs the decoder.
        embedding: tensors of the image's embedding by name.
        points_xy: (N, P, 2) float32, x then y, pixels of the image.
        labels: (N, P) int32.
        size_hw: height and width of the image.
        frame_hw: height and width of its valid area in the frame.
        masks: masks to refine, as `mask_inputs` returns them; None: none.
        candidates: whether to return three candidates for each prompt instead of a single mask.

    Returns:
        Logits (N, K, 256, 256) and predicted IoU (N, K), both float32 and finite, K = 3 or 1.

    Raises:
        DecoderError: the decoder returned values that are not finite.
    """
    inputs = decoder_inputs(
        embedding, points_xy, labels, size_hw=size_hw, frame_hw=frame_hw, masks=masks
    )
    if candidates:
        logits, scores = run(inputs, [LOW_RES_MASKS.name, IOU_PREDICTIONS.name])
        logits, scores = logits[:, CANDIDATE_OUTPUTS], scores[:, CANDIDATE_OUTPUTS]
    else:
        logits, scores = run(inputs, [SINGLE_MASKS.name, IOU_PREDICTIONS.name])
        scores = scores[:, SINGLE_OUTPUT]
    _check_finite(is_finite=bool(np.isfinite(logits).all() and np.isfinite(scores).all()))
    return logits, scores


def decode_masks(
    run: RunDecoder,
    embedding: Mapping[str, Array],
    points_xy: Floats,
    labels: Labels,
    *,
    size_hw: tuple[int, int],
    frame_hw: tuple[int, int],
    masks: tuple[Floats, Floats] | None = None,
    rule: MaskRule,
    outputs: Sequence[Tensor],
) -> dict[str, Array]:
    """Run a decoder that makes masks once, on N prompts; arguments as for `decode`.

    Args:
        rule: the masks to make.
        outputs: the outputs to return.

    Raises:
        DecoderError: logits or scores are not finite.
    """
    prompts = decoder_inputs(
        embedding, points_xy, labels, size_hw=size_hw, frame_hw=frame_hw, masks=masks
    )
    names = [tensor.name for tensor in (*outputs, IS_FINITE)]
    answers = dict(zip(names, run(prompts | rule.inputs(), names), strict=True))
    _check_finite(is_finite=bool(answers[IS_FINITE.name].all()))
    return answers


def _check_finite(*, is_finite: bool) -> None:
    if not is_finite:
        raise DecoderError(f"{DECODER}: expected finite logits and scores")


def decoder_inputs(
    embedding: Mapping[str, Array],
    points_xy: Floats,
    labels: Labels,
    *,
    size_hw: tuple[int, int],
    frame_hw: tuple[int, int],
    masks: tuple[Floats, Floats] | None = None,
) -> dict[str, Array]:
    """Return the decoder's inputs by name; arguments as for `decode`."""
    point_coords, point_labels = points_to_frame(points_xy, labels, size_hw, frame_hw)
    mask_input, has_mask_input = masks or mask_inputs(None, None, 1)
    return {
        **embedding,
        FRAME_POINTS_XY.name: point_coords,
        FRAME_LABELS.name: point_labels,
        FRAME_MASK_INPUT.name: mask_input,
        HAS_MASK_INPUT.name: has_mask_input,
    }


def points_to_frame(
    points_xy: Floats, labels: Labels, size_hw: tuple[int, int], frame_hw: tuple[int, int]
) -> tuple[Floats, Floats]:
    """Scale points into the frame, and append the padding point to objects without a box.

    Args:
        points_xy: (N, P, 2) float32, x then y, pixels of the image.
        labels: (N, P) int32.
        size_hw: height and width of the image.
        frame_hw: height and width of its valid area in the frame.

    Returns:
        `point_coords` (N, P', 2) and `point_labels` (N, P') of the decoder, both float32.
    """
    scale_xy = np.array([frame_hw[1] / size_hw[1], frame_hw[0] / size_hw[0]], np.float32)
    point_coords = points_xy * scale_xy
    point_labels = labels.astype(np.float32)
    has_box = (labels == BOX_TOP_LEFT).any(axis=1)
    if has_box.all():
        return point_coords, point_labels
    padding = np.where(has_box, NO_POINT, PADDING_POINT).astype(np.float32)[:, None]
    origin = np.zeros_like(point_coords[:, :1])
    point_coords = np.concatenate([point_coords, origin], axis=1)
    return point_coords, np.concatenate([point_labels, padding], axis=1)


def mask_inputs(masks: Floats | None, objects: Labels | None, count: int) -> tuple[Floats, Floats]:
    """Return the decoder's `mask_input` and `has_mask_input`.

    Args:
        masks: (M, 256, 256) float32 logits of earlier answers; None for no mask.
        objects: (M,) int32, index of the object that each mask belongs to.
        count: number of objects.

    Returns:
        (count, 1, 256, 256) and (count,) float32; (1, 1, 256, 256) and (1,) if no object has an
        earlier mask.
    """
    if masks is None or objects is None or not len(objects):
        return np.zeros((1, 1, MASK_SIDE, MASK_SIDE), np.float32), np.zeros(1, np.float32)
    mask_input = np.zeros((count, 1, MASK_SIDE, MASK_SIDE), np.float32)
    has_mask_input = np.zeros(count, np.float32)
    mask_input[objects, 0] = masks
    has_mask_input[objects] = 1
    return mask_input, has_mask_input
