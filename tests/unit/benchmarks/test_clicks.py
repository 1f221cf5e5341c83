"""Simulated user: placement and counting of clicks."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.clicks import MAX_CLICKS, Click, clicks_to_reach, iou_after, next_click, number_of_clicks


def square(top: int, left: int, side: int) -> np.ndarray:
    mask = np.zeros((40, 60), bool)
    mask[top : top + side, left : left + side] = True
    return mask


def test_next_click_goes_to_the_centre_of_missing_pixels():
    assert next_click(square(0, 0, 0), square(10, 20, 9), []) == Click((24, 14), 1)


def test_next_click_goes_to_the_centre_of_superfluous_pixels():
    wanted = square(2, 2, 5)
    assert next_click(wanted | square(20, 40, 11), wanted, []) == Click((45, 25), 0)


def test_next_click_goes_to_the_deepest_error_rather_than_the_largest():
    line = np.zeros((40, 60), bool)
    line[38, :] = True  # 60 pixels, one deep
    wanted = square(2, 2, 5) | line
    assert next_click(square(0, 0, 0), wanted, []) == Click((4, 4), 1)


def test_next_click_treats_the_border_of_the_image_as_border_of_the_error():
    everything = np.ones((41, 61), bool)
    assert next_click(~everything, everything, []) in [Click((x, 20), 1) for x in range(20, 41)]


def test_next_click_does_not_repeat_a_click():
    wanted = square(10, 20, 3)
    assert next_click(square(0, 0, 0), wanted, []) == Click((21, 11), 1)
    again = next_click(square(0, 0, 0), wanted, [Click((21, 11), 1)])
    assert again is not None
    assert again.point_xy != (21, 11)
    assert wanted[int(again.point_xy[1]), int(again.point_xy[0])]


def test_next_click_is_none_when_the_mask_is_right():
    assert next_click(square(10, 20, 3), square(10, 20, 3), []) is None


@pytest.mark.parametrize(
    ("ious", "clicks"),
    [
        pytest.param([0.9], 1, id="first-click"),
        pytest.param([0.5, 0.89, 0.9, 0.95], 3, id="third-click"),
        pytest.param([0.5, 0.91, 0.8], 2, id="reached-and-lost-again"),
        pytest.param([0.5, 0.6], None, id="not-reached"),
        pytest.param([0.5] * (MAX_CLICKS - 1) + [0.9], MAX_CLICKS, id="last-click"),
        pytest.param([0.5] * MAX_CLICKS + [0.9], None, id="one-click-too-late"),
    ],
)
def test_clicks_to_reach_counts_up_to_the_first_that_reaches_the_target(ious, clicks):
    assert clicks_to_reach(ious, 0.9) == clicks


def test_number_of_clicks_counts_failures_as_max_clicks():
    assert number_of_clicks([1, 4, None]) == pytest.approx((1 + 4 + 20) / 3)


@pytest.mark.parametrize(("clicks", "iou"), [(1, 0.5), (2, 0.7), (5, 0.7)])
def test_iou_after_the_last_click_is_that_of_the_last_mask(clicks, iou):
    assert iou_after([0.5, 0.7], clicks) == iou
