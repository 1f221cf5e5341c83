"""Criterion for engines that keep the masks, and the clicks on which it is measured."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.clicks import Click
from benchmarks.gate import BASELINE, CLICKS, OTHERS, Networks, agreement, human_iou, keeps_masks
from benchmarks.objects import LabelledObject

OBJECTS, BOX = 20, CLICKS
NEAR = np.ones((OBJECTS, CLICKS + 1, 4))
HUMAN = np.full((OBJECTS, CLICKS + 1, 2), 0.7)


def changed(values: np.ndarray, where: tuple, value: float) -> np.ndarray:
    """Return a copy of the values with `value` at an index."""
    copy = values.copy()
    copy[where] = value
    return copy


@pytest.mark.parametrize(
    ("kept", "agreed"),
    [
        pytest.param(True, 0.981 * NEAR, id="near-float32"),
        *(pytest.param(False, changed(NEAR, np.s_[:, at, 0], 0.979), id=f"single-{at}") for at in range(CLICKS + 1)),
        *(pytest.param(False, changed(NEAR, np.s_[:, at, 1:], 0.979), id=f"others-{at}") for at in range(CLICKS + 1)),
        pytest.param(True, changed(NEAR, np.s_[0, :, 0], 0.89), id="one-low-mask-of-20"),
        pytest.param(False, changed(NEAR, np.s_[:2, 4, 0], 0.89), id="two-low-masks-of-20"),
        pytest.param(True, changed(NEAR, np.s_[:2, 4, 1], 0.89), id="two-low-candidates-of-20"),
    ],
)
def test_engine_keeps_masks_only_if_those_of_every_click_are_near_float32(kept, agreed):
    assert keeps_masks(agreed, HUMAN, HUMAN) is kept


@pytest.mark.parametrize(
    ("kept", "change", "where"),
    [
        pytest.param(True, -0.0029, np.s_[:], id="small-drop"),
        pytest.param(False, -0.004, np.s_[:, 0, 0], id="first-click-drops"),
        pytest.param(False, -0.004, np.s_[:, 4, 0], id="fifth-click-drops"),
        pytest.param(False, -0.004, np.s_[:, 0, 1], id="best-of-three-drops"),
        pytest.param(False, -0.004, np.s_[:, BOX, 0], id="box-drops"),
    ],
)
def test_engine_keeps_masks_only_without_a_drop_of_human_iou(kept, change, where):
    assert keeps_masks(NEAR, changed(HUMAN, where, 0.7 + change), HUMAN) is kept


def test_human_iou_is_that_of_the_single_mask_and_of_the_best_candidate():
    wanted = np.array([[True, True, False, False]])
    half, all_of_it, other = (np.array([row], bool) for row in ([1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 1]))
    assert human_iou([[half, other, all_of_it, half], [all_of_it, other, other, half]], wanted) == [(0.5, 1), (1, 0.5)]


def test_empty_masks_agree():
    empty, full = np.zeros((2, 2), bool), np.ones((2, 2), bool)
    assert agreement([[empty, empty], [full]], [[empty, full], [full]]) == [[1.0, 0.0], [1.0]]


class Recorder(Networks):
    """Networks whose decoder selects the pixels left of column 8 for the baseline, and right of it for others."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[tuple[float, float]], list[int], np.ndarray | None]] = []

    def _decode(self, file, engines, points_xy, labels, earlier=None):
        self.calls.append((list(points_xy), list(labels), earlier))
        mask = np.zeros((16, 16), bool)
        mask[:, :8] = engines == BASELINE
        return [mask] * 4, np.full((1, 1, 256, 256), 7 if engines == BASELINE else 8, np.float32)


def test_engines_repeat_the_clicks_of_the_baseline_and_refine_their_own_masks():
    wanted = np.zeros((16, 16), bool)
    wanted[:, 4:12] = True
    labelled = LabelledObject(Path("a"), np.zeros((16, 16, 3), np.uint8), wanted, (5.0, 6.0), (4, 0, 12, 16))
    networks = Recorder()
    answers, clicks = networks.answer(labelled, BASELINE)
    assert [len(answers), len(clicks), clicks[0]] == [CLICKS + 1, CLICKS, Click((5.0, 6.0), 1)]
    assert {click.label for click in clicks} == {0, 1}
    baseline, networks.calls = networks.calls, []
    assert networks.answer(labelled, OTHERS[0], clicks)[1] == clicks
    for calls, logit in ((baseline, 7), (networks.calls, 8)):
        points, labels, earlier = zip(*calls, strict=True)
        assert [len(each) for each in points] == [1, 2, 3, 4, 5, 2]
        assert labels[4] == [click.label for click in clicks]
        assert points[4] == [click.point_xy for click in clicks]
        assert [None if mask is None else mask.flat[0] for mask in earlier] == [None, *[logit] * 4, None]
    assert (points[BOX], labels[BOX]) == ([(4, 0), (12, 16)], [2, 3])
