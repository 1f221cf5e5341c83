"""Rendered sequences with known masks, and the table of following them."""

import numpy as np
import pytest

from benchmarks.follow import Finding, copy, row
from benchmarks.sequences import SCENES, Actor, Key, Scene, render
from mobile_sam_client import Client

LEAVING = next(scene for scene in SCENES if scene.name == "leaving")
OCCLUSION = next(scene for scene in SCENES if scene.name == "occlusion")


def test_same_seed_renders_the_same_pixels_and_another_one_others():
    one, same, other = (render(SCENES[0], seed, frames=2) for seed in (0, 0, 1))
    assert np.array_equal(one.frames, same.frames)
    for name, masks in one.truth.items():
        assert np.array_equal(list(masks.values()), list(same.truth[name].values()))
    assert not np.array_equal(one.frames[1], other.frames[1])


def test_masks_follow_the_keys_of_an_actor():
    keys = (Key(0, 150, 200, 100), Key(2, 350, 240, 200))
    scene = Scene("test", "rocket.jpg", (Actor("orange", keys),))
    masks = render(scene, seed=0, frames=3).truth["orange"]
    for mask, x, y, height in zip(
        masks.values(), (150, 250, 350), (200, 220, 240), (100, 150, 200), strict=True
    ):
        rows, columns = np.nonzero(mask)
        assert abs((columns.min() + columns.max()) / 2 - x) < 4
        assert abs((rows.min() + rows.max()) / 2 - y) < 4
        assert abs(np.ptp(rows) + 1 - height) < 4


def test_hidden_and_gone_objects_have_empty_masks():
    apple = render(OCCLUSION, seed=0, frames=9).truth["apple"]
    assert apple[0].any()
    assert not apple[7].any()
    cup = render(LEAVING, seed=0, frames=10).truth["cup"]
    assert cup[0].any()
    assert not cup[9].any()


def test_actors_that_are_not_followed_have_no_masks_but_hide_others():
    sequence = render(OCCLUSION, seed=0, frames=6)
    assert sequence.truth.keys() == {"apple", "lemon"}
    assert sequence.truth["apple"][5].sum() < sequence.truth["apple"][0].sum() / 2


def test_copies_are_the_first_mask_and_never_marked():
    sequence = render(SCENES[0], seed=0, frames=3)
    found = list(copy(Client("http://127.0.0.1:1"), sequence))
    assert len(found) == 2
    mask, is_marked = found[1]["saucer"]
    assert np.array_equal(mask, sequence.truth["saucer"][0])
    assert not is_marked


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        (
            [Finding(10, 0.8, True, False), Finding(10, 0.6, True, True)],
            ["0.700", "0 of 0", "1 of 2"],
        ),
        ([Finding(10, 0.0, False, True), Finding(3, 0.4, True, False)], ["-", "1 of 2", "0 of 0"]),
    ],
    ids=["seen", "hidden or lost"],
)
def test_row_counts_what_is_lost_and_marked(findings, expected):
    assert row(findings) == expected
