"""Rounding of regions, and automatic regions."""

import random

import numpy as np
import pytest

from orchestrator.problems import Rejected
from orchestrator.regions import (
    MAX_AUTO_SHARE,
    MIN_SIDE_PIXELS,
    STEPS,
    auto_region,
    full_image,
    rounded,
)

SIZE_HW = (3000, 4000)


def test_rounded_region_contains_the_region_is_little_larger_and_stays_as_it_is():
    generator = random.Random(0)
    for _ in range(2000):
        height, width = (generator.choice([20, 33, 480, 641, 3000, 65_535]) for _ in range(2))
        sides = [generator.uniform(min(MIN_SIDE_PIXELS, end), end) for end in (width, height)]
        start = [
            generator.uniform(0, end - side)
            for side, end in zip(sides, (width, height), strict=True)
        ]
        given = [
            *start,
            *(
                min(at + side, end)
                for at, side, end in zip(start, sides, (width, height), strict=True)
            ),
        ]
        x0, y0, x1, y1 = found = rounded(given, (height, width))
        assert 0 <= x0 <= given[0] < given[2] <= x1 <= width
        assert 0 <= y0 <= given[1] < given[3] <= y1 <= height
        # Twice a step on each side, if the first rounding leads to larger steps; whole pixels at
        # least.
        largest = max(*sides) * 4 / STEPS + 4
        assert max(x1 - x0 - sides[0], y1 - y0 - sides[1]) <= largest
        assert rounded(found, (height, width)) == found


def test_most_small_movements_of_a_view_lead_to_the_same_region():
    generator = random.Random(1)
    same = 0
    for _ in range(1000):
        x, y, width, height = (
            generator.uniform(*limits)
            for limits in ((0, 2000), (0, 1500), (300, 1500), (300, 1200))
        )
        moved = [at + generator.uniform(-0.01, 0.01) * width for at in (x, y)]
        views = [[max(0, x), max(0, y), x + width, y + height] for x, y in ((x, y), moved)]
        same += rounded(views[0], SIZE_HW) == rounded(views[1], SIZE_HW)
    assert same > 600


@pytest.mark.parametrize(
    "region",
    [
        pytest.param([-1, 0, 100, 100], id="left of the image"),
        pytest.param([0, 0, 4001, 100], id="right of the image"),
        pytest.param([0, 2900, 100, 3000.5], id="below the image"),
        pytest.param([200, 100, 100, 200], id="inverted"),
        pytest.param([100, 100, 100, 200], id="empty"),
        pytest.param([100, 100, 200, 131], id="too small"),
    ],
)
def test_unusable_region_is_rejected_with_the_limits(region):
    with pytest.raises(
        Rejected, match=r"'region'.*0 <= x0 < x1 <= 4000.*at least 32 pixels.*'got': '\["
    ):
        rounded(region, SIZE_HW)


def test_narrow_image_is_a_region():
    assert rounded([0, 0, 500, 8], (8, 500)) == full_image((8, 500)) == (0, 0, 500, 8)


def test_automatic_region_is_a_square_around_all_prompts_inside_the_image():
    for box in ([2000, 1500, 2040, 1520], [0, 0, 9, 90], [3990, 2990, 4000, 3000], [5, 5, 5, 5]):
        boxes = np.array([box, box], np.float32)
        boxes[1, 2] += 100 if box[2] < 3900 else 0
        x0, y0, x1, y1 = auto_region(boxes, SIZE_HW)
        assert x0 <= boxes[:, 0].min() <= boxes[:, 2].max() <= x1 <= 4000
        assert y0 <= boxes[:, 1].min() <= boxes[:, 3].max() <= y1 <= 3000
        assert 0.6 < (x1 - x0) / (y1 - y0) < 1.7
        assert rounded((x0, y0, x1, y1), SIZE_HW) == (x0, y0, x1, y1)


def test_automatic_region_for_large_objects_and_for_distant_ones_is_the_whole_image():
    large = np.array([[0, 0, MAX_AUTO_SHARE * 4000, 10]], np.float32)
    assert auto_region(np.array([[5, 5, 9, 9]], np.float32), (800, 1024)) == full_image((800, 1024))
    distant = np.array([[0, 0, 10, 10], [3000, 100, 3010, 110]], np.float32)
    assert auto_region(large, SIZE_HW) == auto_region(distant, SIZE_HW) == full_image(SIZE_HW)
