"""Masks become polygons and masks again, and common libraries fill the polygons as this page does."""

from functools import cache

import cv2
import numpy as np
import pytest
from PIL import Image, ImageDraw
from pycocotools import mask as coco_mask

from orchestrator.polygons import polygons as service_polygons
from tests.unit.page.formats import decode, iou, rle, run, shapes


@cache
def masks() -> list[np.ndarray]:
    """Return masks, (H, W) bool: the shapes, noise of all densities, and smooth blobs."""
    rng = np.random.default_rng(0)
    noise = [rng.random(rng.integers(1, 40, 2)) < density for density in np.linspace(0.05, 1, 60)]
    blobs = [cv2.GaussianBlur(rng.standard_normal((200, 300)), (0, 0), sigma) > 0.01 for sigma in (1, 2, 5, 15)]
    return [*shapes(160, 120).values(), *noise, *blobs]


@cache
def traced(frame: str, tolerance: float) -> list[dict]:
    found: list[dict] = run("polygons", masks=[rle(mask) for mask in masks()], frame=frame, tolerance=tolerance)
    return found


def fill_coco(polygons: list[list[float]], mask: np.ndarray) -> np.ndarray:
    if not polygons:
        return np.zeros_like(mask)
    return np.asarray(coco_mask.decode(coco_mask.merge(coco_mask.frPyObjects(polygons, *mask.shape))), bool)


def fill_opencv(polygons: list[list[float]], mask: np.ndarray) -> np.ndarray:
    filled = np.zeros(mask.shape, np.uint8)
    for polygon in polygons:
        cv2.fillPoly(filled, [np.reshape(polygon, (-1, 2)).astype(np.int32)], (1,))
    return filled.astype(bool)


def fill_labelme(polygons: list[list[float]], mask: np.ndarray) -> np.ndarray:
    """Fill polygons as `labelme.utils.shape_to_mask` does."""
    filled = np.zeros_like(mask)
    for polygon in polygons:
        canvas = Image.new("L", (mask.shape[1], mask.shape[0]))
        points = [(x, y) for x, y in np.reshape(polygon, (-1, 2)).tolist()]
        ImageDraw.Draw(canvas).polygon(points, outline=1, fill=1)
        filled |= np.array(canvas, bool)
    return filled


def test_rle_is_encoded_as_by_pycocotools():
    assert [found["encoded"] for found in traced("edges", 0)] == [rle(mask) for mask in masks()]


@pytest.mark.parametrize("frame", ["edges", "pixels"])
def test_polygons_without_tolerance_are_the_mask_again(frame):
    for mask, found in zip(masks(), traced(frame, 0), strict=True):
        assert found["again"] == rle(mask)


@pytest.mark.parametrize(
    ("frame", "fill"),
    [("edges", fill_coco), ("pixels", fill_opencv), ("pixels", fill_labelme)],
    ids=["pycocotools", "opencv", "labelme"],
)
def test_libraries_fill_polygons_without_tolerance_as_the_mask(frame, fill):
    for mask, found in zip(masks(), traced(frame, 0), strict=True):
        assert np.array_equal(fill(found["polygons"], mask), mask)


@pytest.mark.parametrize("frame", ["edges", "pixels"])
def test_there_is_one_polygon_per_island_as_in_the_service(frame):
    for mask, found in zip(masks(), traced(frame, 0), strict=True):
        assert len(found["polygons"]) == len(service_polygons(mask, tolerance=0))
        assert all(len(polygon) >= 6 for polygon in found["polygons"])


@pytest.mark.parametrize("frame", ["edges", "pixels"])
def test_the_default_tolerance_keeps_shapes_and_drops_points(frame):
    y, x = np.mgrid[:400, :400]
    ring = ((x - 200) ** 2 + (y - 190) ** 2 < 150**2) & ((x - 220) ** 2 + (y - 190) ** 2 > 60**2)
    exact, simple = (run("polygons", masks=[rle(ring)], frame=frame, tolerance=tolerance)[0] for tolerance in (0, 0.5))
    assert iou(decode(simple["again"]), ring) > 0.98
    assert len(simple["polygons"][0]) <= len(exact["polygons"][0])
    coarse = run("polygons", masks=[rle(ring)], frame=frame, tolerance=2)[0]
    assert iou(decode(coarse["again"]), ring) > 0.95
    assert len(coarse["polygons"][0]) < len(exact["polygons"][0]) / 4


def test_an_object_smaller_than_the_tolerance_remains():
    found = run("polygons", masks=[rle(shapes(160, 120)["pixels"])], frame="edges", tolerance=5)[0]
    assert decode(found["again"]).sum() == 4
