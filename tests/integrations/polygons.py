"""Pixels of polygons."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pycocotools import mask as coco


def filled(rings: Sequence[Sequence[Sequence[float]]], size_hw: tuple[int, int]) -> NDArray[np.bool_]:
    """Return the pixels that are inside an odd number of rings."""
    parts = [coco.decode(coco.frPyObjects([np.ravel(ring).tolist()], *size_hw))[..., 0] for ring in rings]
    mask: NDArray[np.bool_] = np.bitwise_xor.reduce(parts).astype(bool)
    return mask
