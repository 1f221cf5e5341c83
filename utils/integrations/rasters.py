"""Masks of answers as arrays, run lengths, outlines and polygons, for tools with mask formats of their own."""

from collections.abc import Mapping, Sequence
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from pycocotools import mask as coco

from orchestrator.costs import FORMAT_NS
from orchestrator.polygons import TOLERANCE_PIXELS, Ring, polygons

DECODE_NS = 2.5
"""One pixel of the image, for each mask."""
OUTLINE_NS, POLYGON_NS = 6.0, FORMAT_NS["polygon"]
"""One pixel of a mask's box, outlined, or as polygons; both are times of difficult masks, but not of noise."""

Record = dict[str, Any]
"""A mask: `score`, `area`, `box` (left, top, right, bottom), and `rle` or `polygon`."""
Mask = npt.NDArray[np.uint8]


def size_of(record: Mapping[str, Any]) -> int:
    """Return the number of pixels to decode for a record."""
    height, width = record["rle"]["size"] if "rle" in record else (0, 0)
    return int(height * width)


def decoded(record: Record, box_xyxy: Sequence[int | None] = (0, 0, None, None)) -> Mask:
    """Return a mask, (H, W) uint8 of 0 and 1, or the part of it in a box, whose right and bottom are exclusive."""
    rle, (left, top, right, bottom) = record["rle"], box_xyxy
    columns = coco.decode({"size": rle["size"], "counts": rle["counts"].encode()})
    return np.asarray(cv2.transpose(columns[top:bottom, left:right].T), np.uint8)  # in a tenth of NumPy's time


def cropped(record: Record) -> tuple[Mask, list[int]]:
    """Return a mask in its box, and the box's left, top, right and bottom, all inclusive.

    An empty mask has the box of the first pixel.
    """
    left, top, right, bottom = record["box"]
    right, bottom = max(right, left + 1), max(bottom, top + 1)
    return decoded(record, (left, top, right, bottom)), [left, top, right - 1, bottom - 1]


def run_lengths(mask: Mask) -> list[int]:
    """Return the lengths of the runs of equal pixels row by row; the first is of zeros, and may be empty."""
    pixels = mask.ravel()
    edges = np.flatnonzero(pixels[1:] != pixels[:-1]) + 1
    lengths: list[int] = np.diff(edges, prepend=0, append=pixels.size).tolist()
    return [0, *lengths] if pixels[0] else lengths


def outlines(mask: Mask, corner_xy: Sequence[int] = (0, 0)) -> list[npt.NDArray[Any]]:
    """Return the outlines of a mask's islands, without holes, through the centres of their outermost pixels.

    The mask is (H, W) uint8, with its first pixel at `corner_xy`; the outlines are (N, 2) int32, x then y.
    """
    contours, _ = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE, offset=corner_xy)
    return [contour[:, 0] for contour in contours]


def polygons_of(record: Record, tolerance: float = TOLERANCE_PIXELS) -> list[list[Ring]]:
    """Return the polygons of a mask, each a list of rings: the outer one first, then its holes."""
    if "polygon" in record:
        shapes: list[list[Ring]] = record["polygon"]
        return shapes
    return polygons(decoded(record).view(np.bool_), tolerance=tolerance)


def closed(ring: Ring) -> Ring:
    """Return a ring that ends with its first point."""
    return [*ring, ring[0]]
