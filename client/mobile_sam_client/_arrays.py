"""Types of pixels and masks, as arrays and as COCO's RLE."""

from typing import TypedDict

import numpy as np
import numpy.typing as npt

Pixels = npt.NDArray[np.uint8]
"""(H, W, 3) uint8 RGB, or (H, W) uint8 grey where a function says so."""
BoolMask = npt.NDArray[np.bool_]
"""(H, W) bool, True inside the mask."""
UInt8Mask = npt.NDArray[np.uint8]
"""(H, W) uint8, 1 inside the mask and 0 outside, as OpenCV and pycocotools take it."""


class Rle(TypedDict):
    """A mask in COCO's compressed RLE."""

    size: list[int]
    """[height, width] in pixels."""
    counts: str
