"""Masks of answers as arrays, outlines and polygons, for tools with mask formats of their own."""

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

Mask = npt.NDArray[np.uint8]


def rle_of(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the run lengths of a record of `/mobile_sam` or `/everything`, if it has any."""
    rle: Mapping[str, Any] | None = record.get("rle") or record.get("segmentation")
    return rle


def score_of(record: Mapping[str, Any]) -> float:
    """Return the score of a record of `/mobile_sam` or of `/everything`."""
    score: float = record["score"] if "score" in record else record["predicted_iou"]
    return score


def size_of(record: Mapping[str, Any]) -> int:
    """Return the number of pixels to decode for a record."""
    rle = rle_of(record)
    return rle["size"][0] * rle["size"][1] if rle else 0


def decode(rle: Mapping[str, Any], box_xyxy: Sequence[int] | None = None) -> Mask:
    """Return the mask of run lengths, (H, W) uint8 of 0 and 1, or the part of it in a box.

    The right and bottom of the box are exclusive.
    """
    columns = coco.decode({"size": rle["size"], "counts": rle["counts"].encode()})
    if box_xyxy is not None:
        left, top, right, bottom = box_xyxy
        columns = columns[top:bottom, left:right]
    return np.asarray(cv2.transpose(columns.T), np.uint8)  # in a tenth of NumPy's time


def box_of(record: Mapping[str, Any]) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom of a record of `/mobile_sam` or of `/everything`, the last two exclusive.

    An empty mask has the box of the first pixel.
    """
    if "bbox" in record:
        left, top, width, height = record["bbox"]
        right, bottom = left + width, top + height
    else:
        left, top, right, bottom = record["box"]
    return left, top, max(right, left + 1), max(bottom, top + 1)


def outlines(mask: Mask, corner_xy: tuple[int, int] = (0, 0)) -> Sequence[npt.NDArray[Any]]:
    """Return the outlines of a mask's islands, without holes, through the centres of their outermost pixels.

    The mask is (H, W) uint8, with its first pixel at `corner_xy`; the outlines are (N, 1, 2) int32, x then y.
    """
    contours, _ = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE, offset=corner_xy)
    return contours


def polygons_of(record: Mapping[str, Any], tolerance: float = TOLERANCE_PIXELS) -> list[list[Ring]]:
    """Return the polygons of a mask, each a list of rings: the outer one first, then its holes."""
    rle = rle_of(record)
    return record["polygon"] if rle is None else polygons(decode(rle).view(np.bool_), tolerance=tolerance)


def closed(ring: Ring) -> Ring:
    """Return a ring that ends with its first point."""
    return [*ring, ring[0]]
