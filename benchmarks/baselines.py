"""Baselines without a model: a magic wand, OpenCV's GrabCut, the box itself."""

from __future__ import annotations

import cv2
import numpy as np

from benchmarks.objects import LabelledObject, Mask, iou


def flood_fill(labelled: LabelledObject, tolerance: int) -> Mask:
    """Return the selection of a magic wand: neighbours within `tolerance` of the clicked colour, in Lab."""
    lab = cv2.cvtColor(labelled.image, cv2.COLOR_RGB2LAB)
    filled = np.zeros((lab.shape[0] + 2, lab.shape[1] + 2), np.uint8)
    flags = 4 | cv2.FLOODFILL_MASK_ONLY | cv2.FLOODFILL_FIXED_RANGE | (1 << 8)
    start = (int(labelled.point[0]), int(labelled.point[1]))
    cv2.floodFill(lab, filled, start, (0,), (tolerance,) * 3, (tolerance,) * 3, flags)
    mask: Mask = filled[1:-1, 1:-1] > 0
    return mask


def grab_cut(labelled: LabelledObject, from_box: bool) -> Mask:
    """Run five iterations of GrabCut, from the box or from a disc around the click."""
    height, width = labelled.mask.shape
    state = np.full((height, width), cv2.GC_PR_BGD, np.uint8)
    if from_box:
        x0, y0, x1, y1 = (int(value) for value in labelled.box)
        state[:] = cv2.GC_BGD
        state[y0:y1, x0:x1] = cv2.GC_PR_FGD
    else:
        centre = (int(labelled.point[0]), int(labelled.point[1]))
        cv2.circle(state, centre, max(height, width) // 8, (cv2.GC_PR_FGD,), -1)
        cv2.circle(state, centre, 5, (cv2.GC_FGD,), -1)
    if not (state & 1 == 0).any():  # the box covers the image: no background (even states)
        return np.ones((height, width), bool)
    cv2.setRNGSeed(0)
    backwards = np.ascontiguousarray(labelled.image[..., ::-1])
    models = np.zeros((1, 65)), np.zeros((1, 65))
    cv2.grabCut(backwards, state, (0, 0, 0, 0), *models, 5, cv2.GC_INIT_WITH_MASK)
    found: Mask = (state == cv2.GC_FGD) | (state == cv2.GC_PR_FGD)
    return found


def baselines(labelled: LabelledObject) -> dict[str, float]:
    """Return each baseline's IoU with the human mask."""
    box = np.zeros(labelled.mask.shape, bool)
    x0, y0, x1, y1 = (int(value) for value in labelled.box)
    box[y0:y1, x0:x1] = True
    fills = [iou(flood_fill(labelled, tolerance), labelled.mask) for tolerance in (10, 20, 35)]
    return {
        "flood fill in Lab from the click": fills[1],
        "flood fill, best of three tolerances": max(fills),
        "GrabCut from the click": iou(grab_cut(labelled, from_box=False), labelled.mask),
        "GrabCut from the box": iou(grab_cut(labelled, from_box=True), labelled.mask),
        "the box itself": iou(box, labelled.mask),
    }
