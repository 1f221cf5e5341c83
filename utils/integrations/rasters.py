"""Masks of answers as arrays, outlines and polygons, for tools with mask formats of their own."""

from collections.abc import Mapping, Sequence
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
from pycocotools import mask as coco

from orchestrator.costs import FORMAT_NS
from orchestrator.polygons import Ring, polygons
from utils.api.errors import invalid

MAX_PIXELS = 2_000_000_000
"""Pixels of all masks of an answer together; decoding and outlining them takes up to 10 seconds of one core."""
MAX_POLYGONS_S = 10.0
DECODE_NS = 1.0
"""One pixel of the image, for each mask."""

Mask = npt.NDArray[np.uint8]


def check_pixels(rles: Sequence[Mapping[str, Any]], limit: int) -> None:
    """Check the number of pixels of all masks of an image together, before they are decoded.

    Raises:
        InvalidRequest: there are more.
    """
    pixels = sum(rle["size"][0] * rle["size"][1] for rle in rles)
    if pixels > limit:
        expected = f"masks with at most {limit // 10**6} megapixels together (send a smaller image or ask for fewer)"
        raise invalid("image", expected, f"{len(rles)} masks with {pixels // 10**6} megapixels")


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


def polygons_of(records: Sequence[dict[str, Any]]) -> list[list[list[Ring]]]:
    """Return the polygons of each mask of `/everything`, each a list of rings: the outer one first, then its holes.

    Raises:
        InvalidRequest: the masks are too many or too large.
    """
    work_ns = 0.0
    for record in records:
        height, width = record["segmentation"]["size"]
        work_ns += DECODE_NS * height * width + FORMAT_NS["polygon"] * record["bbox"][2] * record["bbox"][3]
    if work_ns > MAX_POLYGONS_S * 1e9:
        expected = f"masks whose polygons take at most {MAX_POLYGONS_S:g} s (use fewer points or higher thresholds)"
        raise invalid("points_per_side", expected, f"{len(records)} masks that take {work_ns / 1e9:.0f} s")
    return [polygons(decode(record["segmentation"]).view(np.bool_)) for record in records]


def closed(ring: Ring) -> Ring:
    """Return a ring whose last point is the first."""
    return [*ring, ring[0]]
