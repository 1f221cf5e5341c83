"""Masks in COCO annotations: run lengths and polygons, checked before memory is taken."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mobile_sam_client._arrays import BoolMask
from mobile_sam_client._datasets.polygon_masks import fill
from mobile_sam_client._datasets.values import DatasetError, json_list, number, shown


def read_segmentation(segmentation: Any, size_wh: tuple[int, int]) -> BoolMask | None:
    """Return the mask, (H, W) bool, of a segmentation; None if there is none.

    Raises:
        DatasetError: it is damaged, or of an image of another size.
    """
    width, height = size_wh
    if segmentation is None or segmentation == []:
        return None
    if isinstance(segmentation, dict):
        return _from_rle(segmentation, width, height)
    parts = json_list(segmentation, "segmentation")
    polygons = parts if isinstance(parts[0], list) else [parts]
    return fill([_points(polygon) for polygon in polygons], width, height)


def box_mask(box_xyxy: Sequence[float], size_wh: tuple[int, int]) -> BoolMask:
    """Return a box, x0, y0, x1, y1 in pixels, as a mask, (H, W) bool."""
    x0, y0, x1, y1 = box_xyxy
    return fill([np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]], np.float64)], *size_wh)


def mask_box(mask: BoolMask) -> tuple[int, int, int, int]:
    """Return the smallest box around a mask, x0, y0, x1, y1 in pixels; x1 and y1 are exclusive.

    Args:
        mask: (H, W) bool, not empty.
    """
    columns = np.flatnonzero(mask.any(axis=0))
    rows = np.flatnonzero(mask.any(axis=1))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def _points(polygon: Any) -> Any:
    values = [number(value, "segmentation") for value in json_list(polygon, "segmentation")]
    if len(values) < 6 or len(values) % 2:
        raise DatasetError("expected a polygon of at least three pairs of numbers")
    return np.array(values).reshape(-1, 2)


def _from_rle(rle: Mapping[str, Any], width: int, height: int) -> BoolMask:
    if rle.get("size") != [height, width]:
        expected = f"expected a mask of {width} x {height} pixels"
        raise DatasetError(f"{expected}, got the size {shown(rle.get('size'))}, height first")
    counts = rle.get("counts")
    runs = _runs(counts) if isinstance(counts, str) else json_list(counts, "counts")
    if not all(type(run) is int and run >= 0 for run in runs) or sum(runs) != width * height:
        raise DatasetError(f"expected run lengths of {width} x {height} pixels in counts")
    values = np.arange(len(runs)) % 2 == 1
    return np.repeat(values, runs).reshape(width, height).T


def _runs(text: str) -> list[int]:
    """Return the run lengths in COCO's compressed form."""
    runs: list[int] = []
    value = 0
    shift = 0
    for character in text:
        bits = ord(character) - 48
        if not 0 <= bits < 64:
            raise DatasetError("expected run lengths in COCO's compressed form in counts")
        value |= (bits & 31) << shift
        shift += 5
        if bits & 32:
            continue
        if bits & 16:
            value -= 1 << shift
        if len(runs) > 2:
            value += runs[-2]
        runs.append(value)
        value = 0
        shift = 0
    return runs
