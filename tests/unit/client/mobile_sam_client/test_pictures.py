"""Overlays of objects on an image."""

from typing import cast

import numpy as np
import pytest

from mobile_sam_client import Rle
from mobile_sam_client._commands.files import write_overlay
from mobile_sam_client._commands.output import CommandError
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


def test_fifty_objects_have_distinct_colours():
    squares = [square(8 * (number % 10), 12 * (number // 10), 5) for number in range(50)]
    edges = {tuple(draw(GREY, squares)[12 * (number // 10), 8 * (number % 10)].tolist()) for number in range(50)}
    assert len(edges) == 50


@pytest.mark.parametrize("step", [1, -1], ids=["small first", "large first"])
def test_small_object_is_drawn_on_top_of_large_one(step):
    drawn = draw(GREY, [square(20, 20, 8), square(10, 10, 40)][::step])
    assert tuple(drawn[24, 24]) != tuple(drawn[40, 40])


@pytest.mark.parametrize("rles", [[], [square(0, 0, 0)]], ids=["no objects", "empty mask"])
def test_image_without_object_pixels_is_unchanged(rles):
    np.testing.assert_array_equal(draw(GREY, rles), GREY)


def test_mask_of_wrong_size_is_rejected():
    with pytest.raises(ValueError, match=r"expected masks of 80 x 60 pixels, got 6 x 4"):
        draw(GREY, [cast(Rle, rle(np.ones((4, 6), bool)))])


def test_overlay_of_an_unreadable_image_is_an_error(tmp_path):
    with pytest.raises(CommandError, match="cannot draw on the image: image: Pillow cannot decode the file: "):
        write_overlay(tmp_path / "overlay.png", b"no image", [])
