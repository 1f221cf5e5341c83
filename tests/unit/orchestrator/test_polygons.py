"""Masks as polygons."""

import cv2
import numpy as np
import pytest

from orchestrator.polygons import TOLERANCE_PIXELS, polygons


def drawn(*rows: str) -> np.ndarray:
    return np.array([[character == "#" for character in row] for row in rows])


def blob(seed: int, cells: int = 7) -> np.ndarray:
    """Return a smooth mask with islands and holes, similar to the model's."""
    generator = np.random.default_rng(seed)
    height, width = generator.integers(60, 140, 2).tolist()
    noise = generator.standard_normal((cells, cells), np.float32)
    return cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC) > 0


def sides(ring: list) -> list:
    return list(zip(ring, [*ring[1:], ring[0]], strict=True))


def filled(found: list, size_hw: tuple[int, ...]) -> np.ndarray:
    """Return which points of a grid twice as fine lie inside polygons, by the even-odd rule."""
    y, x = ((np.arange(2 * side) + 0.5) / 2 for side in size_hw)
    inside = np.zeros((len(y), len(x)), bool)
    for polygon in found:
        odd = np.zeros_like(inside)
        for ring in polygon:
            for (x0, y0), (x1, y1) in sides(ring):
                rows = (y0 > y) != (y1 > y)
                if rows.any():
                    odd[rows] ^= x < (x0 + (y[rows] - y0) * (x1 - x0) / (y1 - y0))[:, None]
        inside |= odd
    return inside


def corners(ring: list) -> set[tuple[float, float]]:
    assert len(ring) == len({tuple(point) for point in ring})
    return {(x, y) for x, y in ring}


def rectangle(x0: float, y0: float, x1: float, y1: float) -> set[tuple[float, float]]:
    return {(x0, y0), (x1, y0), (x1, y1), (x0, y1)}


@pytest.mark.parametrize("size_hw", [(1, 1), (1, 30), (30, 1), (20, 31)])
def test_full_mask_is_a_rectangle_and_an_empty_one_nothing(size_hw):
    ((ring,),) = polygons(np.ones(size_hw, bool))
    assert corners(ring) == rectangle(0, 0, size_hw[1], size_hw[0])
    ((ring,),) = polygons(np.pad(np.ones(size_hw, bool), ((5, 3), (3, 2))))
    assert corners(ring) == rectangle(3, 5, 3 + size_hw[1], 5 + size_hw[0])
    assert polygons(np.zeros(size_hw, bool)) == []


def test_hole_is_a_second_ring():
    for y0, x0, y1, x1 in [(2, 3, 3, 4), (2, 3, 4, 5), (2, 3, 7, 9), (4, 1, 5, 11)]:
        mask = np.ones((10, 12), bool)
        mask[y0:y1, x0:x1] = False
        ((outer, hole),) = polygons(mask)
        assert corners(outer) == rectangle(0, 0, 12, 10)
        assert corners(hole) == rectangle(x0, y0, x1, y1)


@pytest.mark.parametrize("size_hw", [(1, 1), (1, 20), (2, 2)])
def test_hole_that_vanishes_within_the_tolerance_is_left_out(size_hw):
    mask = np.ones((30, 40), bool)
    mask[10 : 10 + size_hw[0], 10 : 10 + size_hw[1]] = False
    ((outer,),) = polygons(mask, tolerance=2)
    assert corners(outer) == rectangle(0, 0, 40, 30)


def test_pixels_touching_at_a_corner_are_one_polygon():
    assert len(polygons(drawn("#..", ".#.", "..#"))) == 1
    ((_, hole),) = polygons(drawn(".#.", "#.#", ".#."))
    assert corners(hole) == rectangle(1, 1, 2, 2)


def test_unsimplified_rings_enclose_exactly_the_mask():
    generator = np.random.default_rng(0)
    for _ in range(60):
        mask = generator.random(generator.integers(1, 14, 2)) < generator.uniform(0.1, 0.9)
        assert np.array_equal(
            filled(polygons(mask, tolerance=0), mask.shape), mask.repeat(2, 0).repeat(2, 1)
        )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tolerance", [TOLERANCE_PIXELS, 3])
def test_rings_deviate_at_most_the_tolerance_from_the_edge(seed, tolerance):
    mask = blob(seed)
    lines = np.array(
        [
            side
            for polygon in polygons(mask, tolerance=tolerance)
            for ring in polygon
            for side in sides(ring)
        ]
    )
    start, along = lines[:, 0], lines[:, 1] - lines[:, 0]
    # Mean at each corner.
    around = cv2.blur(np.pad(mask, 1).astype(np.float32), (2, 2), anchor=(0, 0))[:-1, :-1]
    edge = np.argwhere((around > 0) & (around < 1))[:, None, ::-1].astype(float)
    share = (((edge - start) * along).sum(-1) / (along**2).sum(-1)).clip(0, 1)
    distance = np.linalg.norm(start + share[..., None] * along - edge, axis=-1).min(axis=1)
    assert len(distance) > 100
    assert distance.max() <= tolerance


def test_rings_stay_inside_the_image_and_are_simplified():
    for seed in range(8):
        mask = blob(seed)
        mask[:, -1] = mask[-1] = True
        found = polygons(mask)
        points = np.array([point for polygon in found for ring in polygon for point in ring])
        assert points.min() >= 0
        assert (points.max(axis=0) == (mask.shape[1], mask.shape[0])).all()
        assert min(len(ring) for polygon in found for ring in polygon) >= 3
        padded = np.pad(mask, 1)
        assert (
            len(points) < sum(np.count_nonzero(np.diff(padded, axis=axis)) for axis in (0, 1)) / 2
        )
