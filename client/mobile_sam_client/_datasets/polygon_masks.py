"""Polygons as masks."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mobile_sam_client._arrays import BoolMask
from mobile_sam_client._datasets.values import DatasetError

MAX_COORDINATE_PIXELS = 1e7
"""Farther points have lost the digits of whole pixels, or overflow."""


def fill(polygons: Sequence[npt.NDArray[np.float64]], width: int, height: int) -> BoolMask:
    """Return the union of polygons, (H, W) bool. Each is filled by the even-odd rule.

    A pixel is inside when its centre is.

    Args:
        polygons: each (N, 2) float64, x then y, in pixels, possibly outside of the image.
        width: width of the image.
        height: height of the image.

    Raises:
        DatasetError: a point is too far from the image.
    """
    mask = np.zeros((height, width), bool)
    for points_xy in polygons:
        if not (np.abs(points_xy) < MAX_COORDINATE_PIXELS).all():
            raise DatasetError("a polygon has points far outside of the image")
        mask |= _fill_one(points_xy, width, height)
    return mask


def _fill_one(points_xy: npt.NDArray[np.float64], width: int, height: int) -> BoolMask:
    # True where an edge crosses the centre line of a row: the pixels to its right change sides.
    crossings = np.zeros((height, width + 1), bool)
    edges = zip(points_xy.tolist(), np.roll(points_xy, -1, axis=0).tolist(), strict=True)
    for start, end in edges:
        (x0, y0), (x1, y1) = sorted((start, end), key=lambda point: point[1])
        first, after = np.ceil(np.clip([y0 - 0.5, y1 - 0.5], 0, height)).astype(int)
        if first >= after:
            continue
        rows = np.arange(first, after)
        x = x0 + (rows + 0.5 - y0) * ((x1 - x0) / (y1 - y0))
        columns = np.ceil(np.clip(x - 0.5, 0, width)).astype(int)
        crossings[rows, columns] ^= True
    return np.logical_xor.accumulate(crossings[:, :width], axis=1)
