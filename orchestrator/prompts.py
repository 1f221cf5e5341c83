"""Prompts: checks against the image and conversion to the decoder's inputs.

Labels: 0 negative click, 1 positive click, 2 and 3 the top-left and bottom-right corner of a box, -1 the padding point
that the official predictor appends to prompts without a box, -2 no point (fills up rows of the array).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from orchestrator.problems import INVALID_REQUEST, Rejected

NEGATIVE, POSITIVE, BOX_TOP_LEFT, BOX_BOTTOM_RIGHT, PADDING, ABSENT = 0, 1, 2, 3, -1, -2

MAX_POINTS = 512
"""Points in one run of the decoder, all prompts together: its attention needs memory for each."""
SIDE = 256
"""Side of the decoder's masks."""
MAX_ERRORS = 20
"""Offending points that an error lists."""

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int32]


def check_inside(points_xy: Floats, labels: Labels, size_hw: tuple[int, int]) -> None:
    """Check that all points are inside the image.

    Args:
        points_xy: (N, P, 2) float32, x then y, pixels of the displayed image.
        labels: (N, P) int32.
        size_hw: height and width of the displayed image.

    Raises:
        Rejected: some are not; the first of them are named `points[object][index]`.
    """
    height, width = size_hw
    limit = np.array([width, height], np.float32)
    outside = ~((points_xy >= 0) & (points_xy <= limit)).all(axis=2) & (labels != ABSENT)
    errors = [
        {
            "field": f"points[{item}][{index}]",
            "expected": f"a point inside the image: 0 <= x <= {width}, 0 <= y <= {height}",
            "got": "[{:g}, {:g}]".format(*points_xy[item, index]),
        }
        for item, index in np.argwhere(outside)[:MAX_ERRORS].tolist()
    ]
    if errors:
        raise Rejected(*INVALID_REQUEST, errors)


def count_points(labels: Labels) -> list[int]:
    """Return the number of points of each object, up to its last one.

    Args:
        labels: (N, P) int32.
    """
    trailing = (labels[:, ::-1] != ABSENT).argmax(axis=1)
    counts: list[int] = (labels.shape[1] - trailing).tolist()
    return counts


def batches(counts: Sequence[int], max_prompts: int) -> list[slice]:
    """Split the objects into runs of the decoder, in order.

    All objects of a run are padded to the one with the most points, so an object with many points gets its own run.

    Args:
        counts: points of each object.
        max_prompts: objects in one run.
    """
    runs: list[slice] = []
    start, longest = 0, 0
    for index, count in enumerate(counts):
        longest = max(longest, count)
        together = index + 1 - start
        if index > start and (together > max_prompts or together * longest > MAX_POINTS):
            runs.append(slice(start, index))
            start, longest = index, count
    return [*runs, slice(start, len(counts))]


def to_frame(
    points_xy: Floats, labels: Labels, size_hw: tuple[int, int], frame_hw: tuple[int, int]
) -> tuple[Floats, Floats]:
    """Scale points into the encoder's frame and append the padding point to objects without a box.

    Args:
        points_xy: (N, P, 2) float32, x then y, pixels of the displayed image.
        labels: (N, P) int32.
        size_hw: height and width of the displayed image.
        frame_hw: height and width of its valid area in the frame.

    Returns:
        `point_coords` (N, P', 2) and `point_labels` (N, P') of the decoder, both float32.
    """
    scale = np.array([frame_hw[1] / size_hw[1], frame_hw[0] / size_hw[0]], np.float32)
    coords = points_xy * scale
    boxed = (labels == BOX_TOP_LEFT).any(axis=1)
    if boxed.all():
        return coords, labels.astype(np.float32)
    last = np.where(boxed, ABSENT, PADDING).astype(np.float32)[:, None]
    coords = np.concatenate([coords, np.zeros_like(coords[:, :1])], axis=1)
    return coords, np.concatenate([labels.astype(np.float32), last], axis=1)


def mask_inputs(masks: Floats | None, objects: Labels | None, count: int) -> tuple[Floats, Floats]:
    """Return the decoder's `mask_input` and `has_mask_input`.

    Args:
        masks: (M, 256, 256) float32 logits of earlier answers; None for no mask.
        objects: (M,) int32, index of the object that each mask belongs to.
        count: number of objects.

    Returns:
        (count, 1, 256, 256) and (count,) float32; (1, 1, 256, 256) and (1,) if no object has an earlier mask.
    """
    if masks is None or objects is None or not len(objects):
        return np.zeros((1, 1, SIDE, SIDE), np.float32), np.zeros(1, np.float32)
    mask_input, has_mask = np.zeros((count, 1, SIDE, SIDE), np.float32), np.zeros(count, np.float32)
    mask_input[objects, 0], has_mask[objects] = masks, 1
    return mask_input, has_mask
