"""Masks become polygons and masks again; test_export has the same in common libraries."""

from functools import cache

import cv2
import numpy as np
import pytest

from orchestrator.polygons import polygons as service_polygons
from tests.unit.page.formats import decode, iou, rle, run, shapes


@cache
def masks() -> list[np.ndarray]:
    """Return masks, (H, W) bool: the shapes, noise of all densities, and smooth blobs."""
    rng = np.random.default_rng(0)
    noise = [rng.random(rng.integers(1, 40, 2)) < density for density in np.linspace(0.05, 1, 60)]
    blobs = [
        cv2.GaussianBlur(rng.standard_normal((200, 300)), (0, 0), sigma) > 0.01
        for sigma in (1, 2, 5, 15)
    ]
    return [*shapes(160, 120).values(), *noise, *blobs]


@cache
def traced(frame: str, tolerance: float) -> list[dict]:
    found: list[dict] = run(
        "polygons", masks=[rle(mask) for mask in masks()], frame=frame, tolerance=tolerance
    )
    return found


def test_rle_is_encoded_as_by_pycocotools():
    assert [found["encoded"] for found in traced("edges", 0)] == [rle(mask) for mask in masks()]


@pytest.mark.parametrize("frame", ["edges", "pixels"])
def test_polygons_without_tolerance_are_the_mask_again_one_for_each_island_of_the_service(frame):
    for mask, found in zip(masks(), traced(frame, 0), strict=True):
        assert found["again"] == rle(mask)
        assert len(found["polygons"]) == len(service_polygons(mask, tolerance=0))
        assert all(len(polygon) >= 6 for polygon in found["polygons"])


@pytest.mark.parametrize("frame", ["edges", "pixels"])
def test_the_default_tolerance_keeps_shapes_and_drops_points(frame):
    y, x = np.mgrid[:400, :400]
    ring = ((x - 200) ** 2 + (y - 190) ** 2 < 150**2) & ((x - 220) ** 2 + (y - 190) ** 2 > 60**2)
    exact, simple = (
        run("polygons", masks=[rle(ring)], frame=frame, tolerance=tolerance)[0]
        for tolerance in (0, 0.5)
    )
    assert iou(decode(simple["again"]), ring) > 0.98
    assert len(simple["polygons"][0]) <= len(exact["polygons"][0])
    coarse = run("polygons", masks=[rle(ring)], frame=frame, tolerance=2)[0]
    assert iou(decode(coarse["again"]), ring) > 0.95
    assert len(coarse["polygons"][0]) < len(exact["polygons"][0]) / 4


def test_an_object_smaller_than_the_tolerance_remains():
    found = run("polygons", masks=[rle(shapes(160, 120)["pixels"])], frame="edges", tolerance=5)[0]
    assert decode(found["again"]).sum() == 4
