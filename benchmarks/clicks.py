"""Simulated user of interactive segmentation benchmarks, who clicks until the mask is good enough.

The number of clicks (NoC@90) is the mean over objects of the clicks needed to reach an IoU of 0.90.
An object that does not reach it within `MAX_CLICKS` counts as `MAX_CLICKS`. Clicks are placed as in
the evaluation code of RITM (Sofiiuk et al. 2021, arXiv:2102.06583).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from benchmarks.objects import Mask

MAX_CLICKS = 20


@dataclass(frozen=True)
class Click:
    """A click at `point_xy` in pixels; `label` is 1 for more of this, 0 for less."""

    point_xy: tuple[float, float]
    label: int


def next_click(answer: Mask, wanted: Mask, clicks: Sequence[Click]) -> Click | None:
    """Return a click at the centre of the largest error region by distance transform.

    This is the wrong pixel farthest from the border of its region; missing and superfluous pixels
    count alike.

    Args:
        answer: (H, W) bool.
        wanted: (H, W) bool.
        clicks: the clicks so far; their pixels are not clicked again.

    Returns:
        The click, or None if no other pixel is wrong.
    """
    left, top, width, height = cv2.boundingRect((answer != wanted).view(np.uint8))
    if not width:
        return None
    answer, wanted = (mask[top : top + height, left : left + width] for mask in (answer, wanted))
    depths = []
    for wrong in (answer & ~wanted, wanted & ~answer):
        padded = np.pad(wrong.astype(np.uint8), 1)
        depths.append(cv2.distanceTransform(padded, cv2.DIST_L2, cv2.DIST_MASK_PRECISE)[1:-1, 1:-1])
        for click in clicks:
            x, y = int(click.point_xy[0]) - left, int(click.point_xy[1]) - top
            if 0 <= x < width and 0 <= y < height:
                depths[-1][y, x] = 0
    label = int(depths[1].max() > depths[0].max())
    if depths[label].max() == 0:
        return None
    row, column = np.unravel_index(int(depths[label].argmax()), wanted.shape)
    return Click((float(left + column), float(top + row)), label)


def clicks_to_reach(ious: Sequence[float], target: float) -> int | None:
    """Return the number of clicks until the IoU is at least `target`, or None if `MAX_CLICKS` are
    not enough.

    Args:
        ious: the IoU after 1, 2, ... clicks.
        target: the IoU to reach.
    """
    return next((number for number, iou in enumerate(ious[:MAX_CLICKS], 1) if iou >= target), None)


def iou_after(ious: Sequence[float], clicks: int) -> float:
    """Return the IoU after that many clicks; a user who stopped earlier keeps the last mask."""
    return ious[min(clicks, len(ious)) - 1]
