"""Masks as polygons: outer rings and holes."""

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from orchestrator.arrays import BoolMask, UInt8Mask
from orchestrator.problems import ANSWER_TOO_LARGE, rejected

TOLERANCE_PIXELS = 0.5
"""Default of the largest distance of a ring from the edge of the mask, in pixels of the image."""

MAX_RINGS = 50_000
"""Rings in all masks of an answer together. Each takes 20 us; a mask of noise has thirty
thousand."""

Ring = list[list[float]]


def polygons(
    mask: BoolMask, max_rings: int = MAX_RINGS, tolerance: float = TOLERANCE_PIXELS
) -> list[list[Ring]]:
    """Return a mask as polygons, each a list of rings: the outer one first, then its holes.

    A ring is a list of [x, y], in pixels of the image with whole numbers at pixel edges: a single
    pixel at column 3 and row 5 is the square from [3, 5] to [4, 6]. The last point is joined to the
    first. Rings are simplified to within `tolerance` pixels of the mask's edge; polygons and holes
    that vanish thereby are left out.

    Raises:
        Rejected: the mask has more than `max_rings` rings.
    """
    x, y, width, height = cv2.boundingRect(mask.view(np.uint8))
    if not width:
        return []
    edges = _edges(mask[y : y + height, x : x + width])
    contours, hierarchy = cv2.findContours(edges, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_NONE)
    if len(contours) > max_rings:
        expected = (
            f"at most {MAX_RINGS} outlines and holes in all masks together; ask for rle or png"
            " instead"
        )
        raise rejected(ANSWER_TOO_LARGE, "mask_format", expected, "polygon, with more")
    parents = hierarchy[0, :, 3]  # -1 for an outer contour, otherwise the contour around the hole
    rings = [_ring(contour, x, y, tolerance) for contour in contours]
    # A ring of two points has no area: it vanished when it was simplified.
    shapes = {}
    for index in np.flatnonzero(parents < 0).tolist():
        if len(rings[index]) >= 3:
            shapes[index] = [rings[index]]
    for index in np.flatnonzero(parents >= 0).tolist():
        outer = int(parents[index])
        if len(rings[index]) >= 3 and outer in shapes:
            shapes[outer].append(rings[index])
    return list(shapes.values())


def _edges(mask: BoolMask) -> UInt8Mask:
    """Return the mask on a grid twice as fine, (2H + 1, 2W + 1) uint8, each pixel with its edges
    and corners.

    OpenCV's contours run through the centres of pixels; on this grid those are the edges of the
    mask's pixels.
    """
    height, width = mask.shape
    fine = np.zeros((2 * height + 1, 2 * width + 1), np.uint8)
    inside = mask.view(np.uint8)
    for down in range(3):
        for right in range(3):
            part = fine[down : down + 2 * height - 1 : 2, right : right + 2 * width - 1 : 2]
            np.maximum(part, inside, out=part)
    return fine


def _ring(contour: npt.NDArray[Any], x: int, y: int, tolerance: float) -> Ring:
    """Return a contour of the fine grid, simplified, in pixels of the image."""
    simple = cv2.approxPolyDP(_with_corners(contour[:, 0]), 2 * tolerance, closed=True)[:, 0]
    ring: Ring = (simple / 2 + (x, y)).tolist()
    return ring


def _with_corners(contour: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Insert the pixel corners, at even coordinates, that a contour (N, 2) of the fine grid cuts
    diagonally.
    """
    following = np.roll(contour, -1, axis=0)
    diagonal = np.flatnonzero((contour != following).all(axis=1))
    start, end = contour[diagonal], following[diagonal]
    return np.insert(contour, diagonal + 1, np.where(start % 2 == 0, start, end), axis=0)
