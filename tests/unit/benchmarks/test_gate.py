"""Criterion for engines that keep the masks, and the clicks on which it is measured."""

import numpy as np
import pytest

from benchmarks.gate import CLICKS, keeps_masks

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
