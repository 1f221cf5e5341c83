"""Automatic masks: which answers to a grid of clicks are worth keeping, and how they are tidied.

The steps and their thresholds are those of Segment Anything's automatic mask generator
(https://github.com/facebookresearch/segment-anything, `automatic_mask_generator.py` and `utils/amg.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from mobile_sam_masks import Logits, Mask, area_and_box, rle

NEAR_EDGE = 20
"""Pixels; a mask whose box comes this close to the edge of a crop was probably cut off there."""

Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class Thresholds:
    """What a mask must reach."""

    pred_iou_thresh: float
    stability_score_thresh: float
    stability_score_offset: float
    """In logits."""
    min_mask_region_area: int
    """Smaller holes are filled and smaller islands removed, in pixels; 0: neither."""


def stability(logits: Logits, offset: float) -> float:
    """How little a mask changes with its threshold: IoU of the masks at +`offset` and -`offset`.

    Args:
        logits: (H, W) float32.
        offset: in logits.
    """
    smaller, larger = np.count_nonzero(logits > offset), np.count_nonzero(logits > -offset)
    return smaller / larger if larger else 0.0


def cut_off(box: Box, crop: Box, size_hw: tuple[int, int]) -> bool:
    """Does a mask's box lie near an edge of its crop that is not also an edge of the image? All in image pixels."""
    whole = (0, 0, size_hw[1], size_hw[0])
    near_crop = (abs(side - edge) <= NEAR_EDGE for side, edge in zip(box, crop, strict=True))
    near_image = (abs(side - edge) <= NEAR_EDGE for side, edge in zip(box, whole, strict=True))
    return any(crop and not image for crop, image in zip(near_crop, near_image, strict=True))


def without_small_regions(mask: Mask, least: int) -> tuple[Mask, bool]:
    """A mask whose holes and islands of fewer than `least` pixels are filled and removed, and whether any were.

    The largest island stays even if it is smaller.

    Args:
        mask: (H, W) bool.
        least: in pixels.
    """
    changed = False
    for holes in (True, False):
        count, regions, stats, _ = cv2.connectedComponentsWithStats((mask ^ holes).view(np.uint8), connectivity=8)
        sizes = stats[1:, cv2.CC_STAT_AREA]
        if count < 2 or not (sizes < least).any():
            continue
        keep = np.concatenate([[False], sizes >= least])
        if not holes and not keep.any():
            keep[1 + int(sizes.argmax())] = True
        mask = keep[regions] ^ holes
        changed = True
    return mask, changed


def record(
    logits: Logits,
    score: float,
    point_xy: npt.NDArray[np.float32],
    *,
    crop: Box,
    size_hw: tuple[int, int],
    thresholds: Thresholds,
) -> dict[str, Any] | None:
    """One of the generator's records, None where the mask is not worth keeping.

    Beside Segment Anything's keys it holds what the last steps over all records need: `box` (xyxy in the image, before
    small regions were removed) and `tidied` (whether any were).

    Args:
        logits: (h, w) float32, at the size of the crop.
        score: predicted IoU.
        point_xy: (2,), the click, pixels of the image.
        crop: x0, y0, x1, y1 of the part of the image it was clicked on.
        size_hw: height and width of the image.
        thresholds: what the mask must reach.
    """
    stable = stability(logits, thresholds.stability_score_offset)
    if stable < thresholds.stability_score_thresh:
        return None
    x0, y0, x1, y1 = crop
    mask = np.zeros(size_hw, bool)
    np.greater(logits, 0, out=mask[y0:y1, x0:x1])
    area, found = area_and_box(mask)
    box = (found[0], found[1], found[2], found[3])
    if not area or cut_off(box, crop, size_hw):
        return None
    tidied = False
    if thresholds.min_mask_region_area:
        mask, tidied = without_small_regions(mask, thresholds.min_mask_region_area)
        area, found = area_and_box(mask)
    return {
        "segmentation": rle(mask),
        "area": area,
        "bbox": [found[0], found[1], found[2] - found[0], found[3] - found[1]],
        "predicted_iou": round(float(score), 4),
        "point_coords": [[float(point_xy[0]), float(point_xy[1])]],
        "stability_score": round(stable, 4),
        "crop_box": [x0, y0, x1 - x0, y1 - y0],
        "box": box,
        "tidied": tidied,
    }
