"""Regions that the page names in requests: rounded as by the service, and masks in them."""

import random

import numpy as np

from orchestrator.regions import rounded
from tests.unit.page.formats import decode, rle, run


def test_regions_are_rounded_as_by_the_service():
    generator = random.Random(0)
    regions = []
    for _ in range(500):
        sides = [generator.randint(32, end) for end in (4000, 3001)]
        x0, y0 = (
            generator.randint(0, end - side) for end, side in zip((4000, 3001), sides, strict=True)
        )
        regions.append([x0, y0, x0 + sides[0], y0 + sides[1]])
    expected = [list(rounded(region, (3001, 4000))) for region in regions]
    assert run("rounded", regions=regions, image={"width": 4000, "height": 3001}) == expected


def test_mask_is_cut_to_a_region():
    mask = np.random.default_rng(0).random((60, 80)) < 0.3
    assert np.array_equal(
        decode(run("cut", mask=rle(mask), region=[10, 5, 45, 60])), mask[5:60, 10:45]
    )
