"""Masks of answers as arrays, run lengths, outlines and polygons, for tools with mask formats of
their own.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from pycocotools import mask as coco

from orchestrator.arrays import UInt8Mask
from orchestrator.costs import FORMAT_NS
from orchestrator.polygons import TOLERANCE_PIXELS, Ring, polygons
from orchestrator.reduced import GRID_RLE, Reduction

DECODE_NS = 2.5
"""One pixel of the image, for each mask."""
OUTLINE_NS, POLYGON_NS = 6.0, FORMAT_NS["polygon"]
"""One pixel of a mask's box, outlined, or as polygons; both are times of difficult masks, but
not of noise."""

Record = dict[str, Any]
"""A mask: `score`, `area`, `box` (left, top, right, bottom) in pixels of the image, and `rle` or
`polygon`.

For an image that is worked on at a smaller size it has `grid_rle` in place of `rle`, of the cells
of its `grid`, a `Reduction`. The functions below return pixels of the image for both.
"""


def size_of(record: Mapping[str, Any]) -> int:
    """Return the number of pixels to decode for a record."""
    rle = record.get(GRID_RLE) or record.get("rle")
    return int(math.prod(rle["size"])) if rle else 0


def image_size_of(record: Mapping[str, Any]) -> int:
    """Return the number of pixels of the image that a record with RLE is of."""
    return int(math.prod(record["grid"].size_hw)) if GRID_RLE in record else size_of(record)


def decoded(record: Record, box_xyxy: Sequence[int] | None = None) -> UInt8Mask:
    """Return a mask, (H, W) uint8 of 0 and 1, or the part of it in a box, whose right and bottom
    are exclusive.
    """
    if GRID_RLE not in record:
        return _array(record["rle"], box_xyxy)
    grid: Reduction = record["grid"]
    return grid.enlarged(
        _array(record[GRID_RLE]), box_xyxy or (0, 0, grid.size_hw[1], grid.size_hw[0])
    )


def rle_of(record: Record) -> dict[str, Any]:
    """Return a mask as COCO's compressed RLE."""
    if GRID_RLE not in record:
        rle: dict[str, Any] = record["rle"]
        return rle
    grid: Reduction = record["grid"]
    return grid.rle(_array(record[GRID_RLE]))


def runs_of(record: Record) -> Sequence[int]:
    """Return the run lengths of a mask, as `run_lengths`, without all pixels of an image that is
    worked on smaller.
    """
    if GRID_RLE not in record:
        return run_lengths(decoded(record))
    grid: Reduction = record["grid"]
    lengths: list[int] = grid.runs(_array(record[GRID_RLE])).tolist()
    return lengths


def _array(rle: Mapping[str, Any], box_xyxy: Sequence[int] | None = None) -> UInt8Mask:
    """Return an RLE as (h, w) uint8 of 0 and 1, or the part of it in a box."""
    columns = coco.decode({"size": rle["size"], "counts": rle["counts"].encode()})
    if box_xyxy is not None:
        left, top, right, bottom = box_xyxy
        columns = columns[top:bottom, left:right]
    return np.asarray(cv2.transpose(columns.T), np.uint8)  # in a tenth of NumPy's time


def cropped(record: Record) -> tuple[UInt8Mask, list[int]]:
    """Return a mask in its box, and the box's left, top, right and bottom, all inclusive.

    An empty mask has the box of the first pixel.
    """
    left, top, right, bottom = record["box"]
    right, bottom = max(right, left + 1), max(bottom, top + 1)
    return decoded(record, (left, top, right, bottom)), [left, top, right - 1, bottom - 1]


def run_lengths(mask: UInt8Mask) -> list[int]:
    """Return the lengths of the runs of equal pixels row by row; the first is of zeros, and may
    be empty.
    """
    pixels = mask.ravel()
    edges = np.flatnonzero(pixels[1:] != pixels[:-1]) + 1
    lengths: list[int] = np.diff(edges, prepend=0, append=pixels.size).tolist()
    return [0, *lengths] if pixels[0] else lengths


def outlines(mask: UInt8Mask, corner_xy: Sequence[int] = (0, 0)) -> list[npt.NDArray[Any]]:
    """Return the outlines of a mask's islands, without holes, through the centres of their
    outermost pixels.

    The mask is (H, W) uint8, with its first pixel at `corner_xy`; the outlines are (N, 2) int32, x
    then y.
    """
    contours, _ = cv2.findContours(
        mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE, offset=corner_xy
    )
    return [contour[:, 0] for contour in contours]


def outlines_of(record: Record) -> list[npt.NDArray[Any]]:
    """Return the outlines of a mask's islands in pixels of the image, as `outlines`."""
    if GRID_RLE not in record:
        crop, bounds = cropped(record)
        return outlines(crop, bounds[:2])
    # Through the centres of the outermost cells they would be half a cell too small.
    last = np.subtract(record["grid"].size_hw[::-1], 1)
    # An island of one cell may vanish within the tolerance.
    shapes = polygons_of(record) or polygons_of(record, 0.0)
    rings = [np.array(rings[0]) for rings in shapes]
    return [np.clip(np.rint(ring - 0.5), 0, last).astype(np.int32) for ring in rings]


def polygons_of(record: Record, tolerance: float = TOLERANCE_PIXELS) -> list[list[Ring]]:
    """Return the polygons of a mask, each a list of rings: the outer one first, then its holes.

    The tolerance is in pixels of the image, or in cells of its grid.
    """
    if "polygon" in record:
        shapes: list[list[Ring]] = record["polygon"]
        return shapes
    if GRID_RLE not in record:
        return polygons(decoded(record).view(np.bool_), tolerance=tolerance)
    grid: Reduction = record["grid"]
    return grid.polygons(polygons(_array(record[GRID_RLE]).view(np.bool_), tolerance=tolerance))


def closed(ring: Ring) -> Ring:
    """Return a ring that ends with its first point."""
    return [*ring, ring[0]]
