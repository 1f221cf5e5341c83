"""Criterion for engines that keep the masks."""

import numpy as np
import pytest

from benchmarks.gate import agreement, human_iou, keeps_masks


def figures(single: float = 1.0, candidates: float = 1.0, change: tuple[float, float, float] = (0, 0, 0)) -> bool:
    agreed = np.tile([single, *[candidates] * 3] * 2, (10, 1))
    human = np.tile([0.6, 0.7, 0.8], (10, 1))
    return keeps_masks(agreed, human + np.array(change), human)


@pytest.mark.parametrize(
    ("kept", "single", "candidates", "change"),
    [
        pytest.param(True, 0.981, 0.981, (0, 0, 0), id="near-float32"),
        pytest.param(False, 0.979, 1, (0, 0, 0), id="single-masks-differ"),
        pytest.param(False, 1, 0.979, (0, 0, 0), id="candidates-differ"),
        pytest.param(True, 1, 1, (-0.0029, 0.01, -0.0029), id="small-drop"),
        pytest.param(False, 1, 1, (-0.004, 0, 0), id="one-click-drops"),
        pytest.param(False, 1, 1, (0.01, -0.004, 0.01), id="best-of-three-drops"),
        pytest.param(False, 1, 1, (0, 0, -0.004), id="box-drops"),
    ],
)
def test_engine_keeps_masks_near_float32_without_a_drop_of_human_iou(kept, single, candidates, change):
    assert figures(single, candidates, change) is kept


def test_human_iou_is_that_of_the_click_its_best_candidate_and_the_box():
    wanted = np.array([[True, True, False, False]])
    half, all_of_it, other = (np.array([row], bool) for row in ([1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 1]))
    masks = [half, other, all_of_it, half, half, all_of_it, all_of_it, all_of_it]
    assert human_iou(masks, wanted) == (0.5, 1.0, 0.5)


def test_empty_masks_agree():
    empty, full = np.zeros((2, 2), bool), np.ones((2, 2), bool)
    assert agreement([empty, empty, full], [empty, full, full]) == [1.0, 0.0, 1.0]
