"""Inputs and outputs of the encoder and the decoder, wherever these run.

From prompts to masks: `decoder_inputs` scales points into the frame and pads them, `decode` runs
the decoder, and `orchestrator.masks.upsample` scales its logits to the image.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from orchestrator.arrays import Array, Floats, Labels
from orchestrator.tensors import (
    BOX_TOP_LEFT,
    CANDIDATES,
    DECODER,
    FRAME_LABELS,
    FRAME_MASK_INPUT,
    FRAME_POINTS_XY,
    HAS_MASK_INPUT,
    IMAGES,
    IOU_PREDICTIONS,
    LOW_RES_MASKS,
    MASK_SIDE,
    NO_POINT,
    PADDING_POINT,
    SINGLE_MASKS,
    SIZES_HW,
)

SINGLE_OUTPUT, CANDIDATE_OUTPUTS = slice(0, 1), slice(1, 1 + CANDIDATES)
"""The decoder's outputs for unambiguous and for ambiguous prompts."""

RunDecoder = Callable[[dict[str, Array], list[str]], Sequence[Array]]
"""Runs the decoder: takes inputs by name and the names of the outputs."""


class DecoderError(Exception):
    """The decoder returned something that cannot be a mask."""


def encoder_inputs(pixels: Array, size_hw: tuple[int, int]) -> dict[str, Array]:
    """Return the encoder's inputs for one image.

    Args:
        pixels: (S, S, 3) uint8 RGB, the frame.
        size_hw: height and width of its valid area.
    """
    return {IMAGES.name: pixels[None], SIZES_HW.name: np.array([size_hw], np.int32)}


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
    if not (np.isfinite(logits).all() and np.isfinite(scores).all()):
        raise DecoderError(f"{DECODER}: expected finite logits and scores")
    return logits, scores


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
