"""Masks as polygons: outer rings and holes."""

from __future__ import annotations

import cv2
import numpy as np
import numpy.typing as npt
from mobile_sam_problems import Rejected

TOLERANCE = 0.5
"""How far a ring may stray from the edge of the mask, in pixels of the image."""

MAX_RINGS = 50_000
"""Of all masks of an answer together; each takes 20 us, and noise has thirty thousand."""

Mask = npt.NDArray[np.bool_]
Ring = list[list[float]]


def polygons(mask: Mask, most: int = MAX_RINGS) -> list[list[Ring]]:
    """A mask as polygons, each a list of rings: the outer one first, then its holes.

    A ring is a list of [x, y], in pixels of the image with whole numbers at the edges of pixels, so that a lone pixel
    at column 3 and row 5 is the square from [3, 5] to [4, 6]; its last point is joined to its first. Rings are
    simplified to within half a pixel of the mask's edge.

    Args:
        mask: (H, W) bool.
        most: rings that it may have.

    Raises:
        Rejected: it has more.
    """
    x, y, width, height = cv2.boundingRect(mask.view(np.uint8))
    if not width:
        return []
    edges = _edges(mask[y : y + height, x : x + width])
    contours, hierarchy = cv2.findContours(edges, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE)
    if len(contours) > most:
        expected = f"masks of together at most {MAX_RINGS} outlines and holes, or the format rle or png"
        error = {"field": "mask_format", "expected": expected, "got": "polygon of masks with more"}
        raise Rejected(422, "answer-too-large", "The answer would be too large", [error])
    parents = hierarchy[0, :, 3]  # -1 for an outer contour, else the contour around a hole
    found = {index: [_ring(contours[index], x, y)] for index in np.flatnonzero(parents < 0).tolist()}
    for index in np.flatnonzero(parents >= 0).tolist():
        hole = _ring(contours[index], x, y)
        if len(hole) >= 3:
            found[int(parents[index])].append(hole)
    return list(found.values())


def _edges(mask: Mask) -> npt.NDArray[np.uint8]:
    """The mask on a grid twice as fine, (2H + 1, 2W + 1) uint8, each pixel with all of its edges and corners.

    Contours run through the middle of grid points; on this grid those of the mask's border are the pixels' edges.
    """
    height, width = mask.shape
    fine = np.zeros((2 * height + 1, 2 * width + 1), np.uint8)
    inside = mask.view(np.uint8)
    for down in range(3):
        for right in range(3):
            part = fine[down : down + 2 * height - 1 : 2, right : right + 2 * width - 1 : 2]
            np.maximum(part, inside, out=part)
    return fine


def _ring(contour: npt.NDArray[np.int32], x: int, y: int) -> Ring:
    """A contour of the fine grid, simplified, in pixels of the image."""
    simple = cv2.approxPolyDP(_with_corners(contour[:, 0]), 2 * TOLERANCE, closed=True)[:, 0]
    ring: Ring = (simple / 2 + (x, y)).tolist()
    return ring


def _with_corners(contour: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """A contour of the fine grid, (N, 2), with the corners of pixels that it cuts: they lie at even coordinates."""
    following = np.roll(contour, -1, axis=0)
    cut = np.flatnonzero((contour != following).all(axis=1))
    here, there = contour[cut], following[cut]
    return np.insert(contour, cut + 1, np.where(here % 2 == 0, here, there), axis=0)
