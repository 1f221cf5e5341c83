"""Polygons of masks: exact edges, holes and tolerance."""

import cv2
import numpy as np
import pytest

from mobile_sam_client._polygons import polygons
from orchestrator.polygons import polygons as polygons_of_the_service

RNG = np.random.default_rng(0)
NOISE = [RNG.random(tuple(RNG.integers(1, 30, 2))) < density for density in np.linspace(0, 1, 40)]
ROWS, COLUMNS = np.mgrid[:120, :160]
RADIUS = np.hypot(ROWS - 60, COLUMNS - 70)
RINGS = (RADIUS < 50) & (RADIUS > 30) | (RADIUS < 20)
"""A disk inside a ring: two polygons, one with a hole."""


def area(ring: np.ndarray) -> float:
    """Return the area inside a ring, negative if it is counter-clockwise."""
    x, y = ring.astype(float).T
    return float(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2


def distance_from_edge(ring: np.ndarray, mask: np.ndarray) -> float:
    """Return the largest distance of the mask's edge from the ring around it, in pixels."""
    (exact,) = (shapes[0] for shapes in polygons(mask, 0))
    around = ring.astype(np.float32)[:, None]
    return max(
        abs(cv2.pointPolygonTest(around, corner, True)) for corner in exact.astype(float).tolist()
    )


@pytest.mark.parametrize("mask", NOISE, ids=[f"noise {number}" for number in range(len(NOISE))])
def test_exact_rings_enclose_the_pixels_of_the_mask(mask):
    found = polygons(mask, 0)
    assert sum(area(ring) for polygon in found for ring in polygon) == mask.sum()
    assert all(
        area(outer) > 0 > max([area(hole) for hole in holes], default=-1) for outer, *holes in found
    )


@pytest.mark.parametrize("mask", [*NOISE, RINGS, np.zeros((3, 4), bool)])
def test_polygons_and_holes_are_those_of_the_service(mask):
    counts, expected = (
        sorted(map(len, found)) for found in (polygons(mask, 0), polygons_of_the_service(mask))
    )
    assert counts == expected


@pytest.mark.parametrize("tolerance", [0.5, 1, 3])
def test_edge_stays_within_the_tolerance(tolerance):
    disk = RADIUS < 50
    ((ring,),), ((exact,),) = polygons(disk, tolerance), polygons(disk, 0)
    assert distance_from_edge(ring, disk) <= tolerance
    assert len(ring) < len(exact)


def test_ring_does_not_vanish_under_a_large_tolerance():
    assert [[len(ring) for ring in polygon] for polygon in polygons(RINGS, 1000)] == [[3, 3], [3]]


@pytest.mark.parametrize("tolerance", [-1, float("nan")])
def test_invalid_tolerance_is_rejected(tolerance):
    with pytest.raises(
        ValueError, match=r"^tolerance: expected a number of pixels of at least 0, got"
    ):
        polygons(RINGS, tolerance)
