"""Points against the image, and in the decoder's terms."""

from __future__ import annotations

import mobile_sam_prompts as prompts
import numpy as np
import pytest
from mobile_sam_problems import Rejected


def points(*xy) -> np.ndarray:
    return np.array([xy], np.float32)


def labels(*values) -> np.ndarray:
    return np.array([values], np.int32)


def test_points_on_the_image_and_on_its_edges_pass():
    prompts.check_inside(points((0, 0), (20, 10), (3.5, 9)), labels(1, 3, 0), (10, 20))


@pytest.mark.parametrize("xy", [(-1, 5), (5, -0.5), (20.5, 5), (5, 11), (1e6, 1e6)])
def test_a_point_outside_is_named_with_the_images_size(xy):
    with pytest.raises(Rejected) as caught:
        prompts.check_inside(points((1, 1), xy), labels(1, 1), (10, 20))
    assert caught.value.status == 422
    (error,) = caught.value.errors
    assert error["field"] == "points[0][1]"
    assert error["expected"] == "a point of the image: 0 <= x <= 20, 0 <= y <= 10"
    assert error["got"] == f"[{xy[0]:g}, {xy[1]:g}]"


def test_of_many_points_outside_the_first_are_named():
    many = np.full((3, 100, 2), -1, np.float32)
    with pytest.raises(Rejected) as caught:
        prompts.check_inside(many, np.ones((3, 100), np.int32), (10, 20))
    assert [error["field"] for error in caught.value.errors] == [f"points[0][{index}]" for index in range(20)]


def test_places_without_a_point_are_not_checked():
    prompts.check_inside(points((1, 1), (-5, -5)), labels(1, prompts.ABSENT), (10, 20))


def test_points_are_scaled_by_each_side_and_padded_where_there_is_no_box():
    coords, decoder_labels = prompts.to_frame(points((900, 600)), labels(1), (1200, 1800), (683, 1024))
    assert coords.tolist() == [[[512, 341.5], [0, 0]]]
    assert decoder_labels.tolist() == [[1, prompts.PADDING]]
    assert coords.dtype == decoder_labels.dtype == np.float32


def test_a_box_needs_no_padding_point():
    coords, decoder_labels = prompts.to_frame(points((1, 2), (3, 4)), labels(2, 3), (1024, 1024), (1024, 1024))
    assert coords.tolist() == [[[1, 2], [3, 4]]]
    assert decoder_labels.tolist() == [[2, 3]]


def test_of_several_objects_only_those_without_a_box_get_the_padding_point():
    _, decoder_labels = prompts.to_frame(
        np.zeros((2, 2, 2), np.float32), np.array([[2, 3], [1, prompts.ABSENT]], np.int32), (9, 9), (1024, 1024)
    )
    assert decoder_labels.tolist() == [[2, 3, prompts.ABSENT], [1, prompts.ABSENT, prompts.PADDING]]


def low_res(*values: float) -> np.ndarray:
    return np.stack([np.full((256, 256), value, np.float32) for value in values])


@pytest.mark.parametrize(
    ("masks", "objects"),
    [
        pytest.param(None, None, id="left out"),
        pytest.param(np.zeros((0, 256, 256), np.float32), np.zeros(0, np.int32), id="none"),
    ],
)
def test_without_earlier_masks_one_empty_one_stands_for_all_objects(masks, objects):
    given, has = prompts.earlier_masks(masks, objects, 5)
    assert given.shape == (1, 1, 256, 256)
    assert not given.any()
    assert has.tolist() == [0]
    assert given.dtype == has.dtype == np.float32


def test_each_earlier_mask_goes_to_its_object():
    given, has = prompts.earlier_masks(low_res(7, -8), np.array([3, 1], np.int32), 4)
    assert given.shape == (4, 1, 256, 256)
    assert given.dtype == has.dtype == np.float32
    assert has.tolist() == [0, 1, 0, 1]
    assert [given[index].min() for index in range(4)] == [0, -8, 0, 7]
    assert [given[index].max() for index in range(4)] == [0, -8, 0, 7]


def test_an_objects_earlier_mask_comes_as_it_was():
    mask = np.random.default_rng(0).normal(0, 10, (1, 256, 256)).astype(np.float32)
    given, has = prompts.earlier_masks(mask, np.array([0], np.int32), 1)
    assert np.array_equal(given[0], mask)
    assert has.tolist() == [1]


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        pytest.param([1], [(0, 1)], id="one"),
        pytest.param([1] * 20, [(0, 8), (8, 16), (16, 20)], id="as many as may be at once"),
        pytest.param([1, 1, 514, 1, 1], [(0, 2), (2, 3), (3, 5)], id="one of many points is alone"),
        pytest.param([100] * 6, [(0, 5), (5, 6)], id="points together"),
        pytest.param([514, 514], [(0, 1), (1, 2)], id="more points than may be at once"),
    ],
)
def test_objects_go_to_the_decoder_in_runs_that_their_own_points_bound(counts, expected):
    assert [(part.start, part.stop) for part in prompts.batches(counts, 8)] == expected


def test_points_are_counted_without_the_places_behind_them():
    assert prompts.count_points(np.array([[1, 0, -2], [2, 3, 1], [-2, 1, -2]], np.int32)) == [2, 3, 2]
