"""Polygons of automatic masks, for tools whose shapes are polygons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from orchestrator.costs import FORMAT_NS
from orchestrator.polygons import Ring, polygons
from utils.api.requests import invalid
from utils.integrations.rasters import decode

MAX_WORK_S = 10.0
DECODE_NS = 1.0
"""One pixel of the image, for each mask."""


def polygons_of(records: Sequence[dict[str, Any]]) -> list[list[list[Ring]]]:
    """Return the polygons of each mask of `/everything`, each a list of rings: the outer one first, then its holes.

    Raises:
        InvalidRequest: the masks are too many or too large.
    """
    work_ns = 0.0
    for record in records:
        height, width = record["segmentation"]["size"]
        work_ns += DECODE_NS * height * width + FORMAT_NS["polygon"] * record["bbox"][2] * record["bbox"][3]
    if work_ns > MAX_WORK_S * 1e9:
        expected = f"masks whose polygons take at most {MAX_WORK_S:g} s (use fewer points or higher thresholds)"
        raise invalid("points_per_side", expected, f"{len(records)} masks that take {work_ns / 1e9:.0f} s")
    return [_polygons(record["segmentation"]) for record in records]


def _polygons(rle: dict[str, Any]) -> list[list[Ring]]:
    return polygons(decode(rle).view(np.bool_))


def closed(ring: Ring) -> Ring:
    """Return a ring whose last point is the first."""
    return [*ring, ring[0]]
