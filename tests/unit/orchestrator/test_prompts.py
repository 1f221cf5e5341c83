"""Checks of prompts and conversion to the decoder's inputs."""

import numpy as np
import pytest

from orchestrator import prompts
from orchestrator.problems import Rejected


def points(*xy) -> np.ndarray:
    return np.array([xy], np.float32)


def labels(*values) -> np.ndarray:
    return np.array([values], np.int32)


@pytest.mark.parametrize("xy", [(-1, 5), (5, -0.5), (20.5, 5), (5, 11), (1e6, 1e6)])
def test_point_outside_the_image_is_rejected(xy):
    with pytest.raises(Rejected) as caught:
        prompts.check_inside(points((1, 1), xy), labels(1, 1), (10, 20))
    assert caught.value.status == 422
    assert caught.value.errors == [
        {
            "field": "points[0][1]",
            "expected": "a point inside the image: 0 <= x <= 20, 0 <= y <= 10",
            "got": f"[{xy[0]:g}, {xy[1]:g}]",
        }
    ]


def test_rejection_names_the_first_points_outside():
    with pytest.raises(Rejected) as caught:
        prompts.check_inside(np.full((3, 100, 2), -1, np.float32), np.ones((3, 100), np.int32), (10, 20))
    assert [error["field"] for error in caught.value.errors] == [f"points[0][{index}]" for index in range(20)]


def test_points_on_the_edges_are_accepted_and_absent_ones_are_not_checked():
    prompts.check_inside(points((0, 0), (20, 10), (3.5, 9), (-5, -5)), labels(1, 3, 0, prompts.ABSENT), (10, 20))


def test_points_are_scaled_and_padded():
    coords, decoder_labels = prompts.to_frame(points((900, 600)), labels(1), (1200, 1800), (683, 1024))
    assert coords.tolist() == [[[512, 341.5], [0, 0]]]
    assert decoder_labels.tolist() == [[1, prompts.PADDING]]
    assert coords.dtype == decoder_labels.dtype == np.float32


def test_only_objects_without_a_box_get_the_padding_point():
    boxes, mixed = labels(2, 3), np.array([[2, 3], [1, prompts.ABSENT]], np.int32)
    coords, decoder_labels = prompts.to_frame(points((1, 2), (3, 4)), boxes, (1024, 1024), (1024, 1024))
    assert (coords.tolist(), decoder_labels.tolist()) == ([[[1, 2], [3, 4]]], [[2, 3]])
    _, decoder_labels = prompts.to_frame(np.zeros((2, 2, 2), np.float32), mixed, (9, 9), (1024, 1024))
    assert decoder_labels.tolist() == [[2, 3, prompts.ABSENT], [1, prompts.ABSENT, prompts.PADDING]]


@pytest.mark.parametrize("count", [None, 0], ids=["left out", "none"])
def test_without_earlier_masks_one_empty_mask_serves_all_objects(count):
    masks, objects = (None, None) if count is None else (np.zeros((0, 256, 256), np.float32), np.zeros(0, np.int32))
    mask_input, has_mask = prompts.mask_inputs(masks, objects, 5)
    assert mask_input.shape == (1, 1, 256, 256)
    assert not mask_input.any()
    assert has_mask.tolist() == [0]
    assert mask_input.dtype == has_mask.dtype == np.float32


def test_earlier_masks_go_to_their_objects_unchanged():
    masks = np.random.default_rng(0).normal(0, 10, (2, 256, 256)).astype(np.float32)
    mask_input, has_mask = prompts.mask_inputs(masks, np.array([3, 1], np.int32), 4)
    assert mask_input.dtype == has_mask.dtype == np.float32
    assert has_mask.tolist() == [0, 1, 0, 1]
    assert np.array_equal(mask_input[[3, 1], 0], masks)
    assert not mask_input[[0, 2]].any()


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        pytest.param([1], [(0, 1)], id="one object"),
        pytest.param([1] * 20, [(0, 8), (8, 16), (16, 20)], id="limit of prompts"),
        pytest.param([1, 1, 514, 1, 1], [(0, 2), (2, 3), (3, 5)], id="object with many points runs alone"),
        pytest.param([100] * 6, [(0, 5), (5, 6)], id="limit of points"),
        pytest.param([514, 514], [(0, 1), (1, 2)], id="objects above the limit of points"),
    ],
)
def test_batches_are_bounded_by_prompts_and_points(counts, expected):
    assert [(part.start, part.stop) for part in prompts.batches(counts, 8)] == expected


def test_count_points_ignores_trailing_absent_points():
    assert prompts.count_points(np.array([[1, 0, -2], [2, 3, 1], [-2, 1, -2]], np.int32)) == [2, 3, 2]
