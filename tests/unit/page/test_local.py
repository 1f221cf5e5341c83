"""Masks that the page makes of the decoder's logits: as the service makes them."""

import base64

import numpy as np
import pytest

from orchestrator.images import Preprocessing
from orchestrator.masks import remove_small_regions, upsample
from tests.unit.page.formats import decode, iou, rle, run, shapes

MIN_IOU = 0.9999


def logits() -> np.ndarray:
    """Return smooth noise, (256, 256) float32: islands and holes of all sizes, also at the
    edges.
    """
    coarse = np.random.default_rng(1).normal(0, 4, (2, 20, 20))
    places = np.linspace(0, 18.99, 256)
    low, share = places.astype(int), (places % 1)[:, None]
    rows = coarse[:, low] * (1 - share) + coarse[:, low + 1] * share
    found = rows[..., low] * (1 - share[:, 0]) + rows[..., low + 1] * share[:, 0]
    return np.ascontiguousarray(found[0] + found[1], np.float32)


@pytest.mark.parametrize("resize", ["longest_side", "squash"])
@pytest.mark.parametrize("threshold", [0.0, -2.5], ids=str)
@pytest.mark.parametrize(
    ("size_hw", "region"),
    [
        ((1200, 1800), None),
        ((320, 480), None),
        ((1024, 1024), None),
        ((2000, 3), None),
        ((1500, 2000), (256, 128, 1280, 896)),
    ],
    ids=str,
)
def test_logits_are_scaled_as_by_the_service(size_hw, region, threshold, resize):
    height, width = size_hw
    x0, y0, x1, y1 = region or (0, 0, width, height)
    preprocessing, values = Preprocessing(resize=resize), logits()
    part_hw = y1 - y0, x1 - x0
    valid_hw = preprocessing.size_in_frame(part_hw)
    expected = np.zeros(size_hw, bool)
    expected[y0:y1, x0:x1] = (
        upsample(values, None if preprocessing.squashes else valid_hw, part_hw) > threshold
    )
    found = run(
        "upsample",
        logits=base64.b64encode(values.tobytes()).decode(),
        threshold=threshold,
        image={"width": width, "height": height},
        valid=valid_hw[::-1],
        isSquashed=preprocessing.squashes,
        region=[x0, y0, x1, y1],
    )
    assert expected.any()
    assert iou(decode(found), expected) >= MIN_IOU


@pytest.mark.parametrize("min_area", [1, 2, 60, 900, 100_000])
def test_small_regions_are_removed_as_by_the_service(min_area):
    height, width = 96, 150
    masks = {
        **shapes(width, height),
        "logits": upsample(logits(), (655, 1024), (height, width)) > 0,
    }
    masks["empty"] = np.zeros((height, width), bool)
    found = run("smoothed", masks=[rle(mask) for mask in masks.values()], minArea=min_area)
    for (name, mask), smoothed in zip(masks.items(), found, strict=True):
        expected, _ = remove_small_regions(mask, min_area)
        assert np.array_equal(decode(smoothed), expected), name
