"""Overlays of objects on an image."""

from typing import cast

import numpy as np
import pytest

from mobile_sam_client import Rle
from mobile_sam_client._pictures import draw
from tests.unit.client.mobile_sam_client.fake_service import rle

GREY = np.full((60, 80, 3), 100, np.uint8)


def square(x: int, y: int, side: int) -> Rle:
    mask = np.zeros(GREY.shape[:2], bool)
    mask[y : y + side, x : x + side] = True
    return cast(Rle, rle(mask))


def test_object_alone_is_tinted_and_outlined():
    drawn = draw(GREY, [square(10, 10, 20)])
    changed = (drawn != 100).any(axis=-1)
    assert changed[10:30, 10:30].all()
    assert changed.sum() == 20 * 20
    edge, inside = drawn[10, 15].astype(int), drawn[20, 20].astype(int)
    assert edge.max() == 255
    assert np.abs(edge - 100).sum() > np.abs(inside - 100).sum() > 0
    np.testing.assert_array_equal(drawn[15, 10], drawn[29, 29])


@pytest.mark.parametrize("step", [1, -1], ids=["small first", "large first"])
def test_small_object_is_drawn_on_top_of_large_one(step):
    drawn = draw(GREY, [square(20, 20, 8), square(10, 10, 40)][::step])
    assert tuple(drawn[24, 24]) != tuple(drawn[40, 40])


def test_mask_of_wrong_size_is_rejected():
    with pytest.raises(ValueError, match=r"expected masks of 80 x 60 pixels, got 6 x 4"):
        draw(GREY, [cast(Rle, rle(np.ones((4, 6), bool)))])
