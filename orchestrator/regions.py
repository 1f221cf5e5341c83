"""Regions: parts of images that are encoded by themselves, at full resolution."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from orchestrator.problems import INVALID_REQUEST, rejected
from orchestrator.tensors import FRAME_SIDE

AUTO = "auto"
"""Region around the prompts of a request."""
MIN_SIDE_PIXELS = 32
STEPS = 8
"""Least number of grid steps along the longer side of a region."""
MARGIN = 0.3
"""Space on each side of the prompts in an automatic region, in units of the longer side of their
box."""
MIN_AUTO_SIDE_PIXELS = 256
"""Least side of an automatic region: the surroundings help more than a larger scale."""
MAX_AUTO_SHARE = 0.5
"""Largest side of an automatic region as a share of the image's: larger objects lose nothing in the
whole image.

Chosen, as the two above, by what `python -m benchmarks.quality` measures.
"""

Box = tuple[int, int, int, int]
"""x0, y0, x1, y1 in whole pixels of the displayed image; x1 and y1 are exclusive."""


def full_image(size_hw: tuple[int, int]) -> Box:
    """Return the region that is the whole image."""
    return 0, 0, size_hw[1], size_hw[0]


def check(
    box_xyxy: Sequence[float],
    size_hw: tuple[int, int],
    field: str,
    min_side: int = 1,
    hint: str = "",
) -> None:
    """Check that a box is inside the image.

    Args:
        box_xyxy: x0, y0, x1, y1 in pixels of the displayed image.
        size_hw: height and width of the displayed image.
        field: name of the box in the error.
        min_side: least width and height in pixels.
        hint: end of the sentence that says what is expected, for boxes outside.

    Raises:
        Rejected: it is not inside the image, inverted, or too small.
    """
    (height, width), (x0, y0, x1, y1) = size_hw, box_xyxy
    inside = min(x0, y0) >= 0 and x1 <= width and y1 <= height
    if not (inside and x1 - x0 >= min(min_side, width) and y1 - y0 >= min(min_side, height)):
        limits = (
            f"0 <= x0 < x1 <= {width}, 0 <= y0 < y1 <= {height}, sides of at least {min_side}"
            " pixels"
        )
        limits += "" if inside else hint
        raise rejected(INVALID_REQUEST, field, limits, "[{:g}, {:g}, {:g}, {:g}]".format(*box_xyxy))


def cut(region_xyxy: Sequence[float], size_hw: tuple[int, int]) -> Sequence[float]:
    """Return the part of a region inside the image.

    A region without such a part is returned unchanged.
    """
    (height, width), (x0, y0, x1, y1) = size_hw, region_xyxy
    inside = max(x0, 0), max(y0, 0), min(x1, width), min(y1, height)
    return inside if inside[0] < inside[2] and inside[1] < inside[3] else region_xyxy


def rounded(region_xyxy: Sequence[float], size_hw: tuple[int, int], hint: str = "") -> Box:
    """Return a region rounded outwards, so that small movements of a view lead to the same one.

    Its edges are multiples of a power of two, at most 1/8 of its longer side, or edges of the
    image. A rounded region is not changed.

    Args:
        region_xyxy: x0, y0, x1, y1 in pixels of the displayed image.
        size_hw: height and width of the displayed image.
        hint: as for `check`.

    Raises:
        Rejected: it is not inside the image, inverted, or too small.
    """
    check(region_xyxy, size_hw, "region", MIN_SIDE_PIXELS, hint)
    (height, width), (x0, y0, x1, y1) = size_hw, region_xyxy
    step = 1 << max(0, int(max(x1 - x0, y1 - y0) / STEPS).bit_length() - 1)
    left, top = (int(side // step) * step for side in (x0, y0))
    right, bottom = (
        min(end, -int(-side // step) * step) for side, end in ((x1, width), (y1, height))
    )
    box_xyxy = left, top, right, bottom
    if box_xyxy == tuple(region_xyxy):
        return box_xyxy
    return rounded(box_xyxy, size_hw)  # the step of a larger region may be larger


def auto_region(boxes_xyxy: npt.NDArray[np.float32], size_hw: tuple[int, int]) -> Box:
    """Return the automatic region: a square around all boxes with a margin, or the whole image.

    The whole image is better for large objects, and if it is not scaled down for the encoder.

    Args:
        boxes_xyxy: (N, 4) float32, pixels of the displayed image, N > 0.
        size_hw: height and width of the displayed image.
    """
    size_wh = np.array(size_hw[::-1])
    low, high = boxes_xyxy[:, :2].min(axis=0), np.minimum(boxes_xyxy[:, 2:].max(axis=0), size_wh)
    side = max(MIN_AUTO_SIDE_PIXELS, math.ceil((1 + 2 * MARGIN) * float((high - low).max())))
    if side > MAX_AUTO_SHARE * max(size_hw) or max(size_hw) <= FRAME_SIDE:
        return full_image(size_hw)
    start = np.clip(np.floor((low + high - side) / 2), 0, np.maximum(size_wh - side, 0))
    return rounded([*start.tolist(), *np.minimum(start + side, size_wh).tolist()], size_hw)
