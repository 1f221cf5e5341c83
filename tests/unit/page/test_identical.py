"""Imported objects that an image has already are left out, and counted."""

import numpy as np
import pytest

from tests.unit.page.formats import rle, run, shapes

SHAPES = shapes(160, 120)
DISC, HOLE = (rle(SHAPES[name]) for name in ("disc", "hole"))
BOX = [10, 10, 40, 30]
MOVED = rle(np.roll(SHAPES["disc"], 1, axis=1))
NOTHING = {"kept": [], "identical": 0, "similar": 0, "otherClass": 0, "replaced": []}


def added(name: str, mask: dict, class_id: int = 1, **fields: object) -> dict:
    return {"name": name, "rle": mask, "classId": class_id, **fields}


def known(mask: dict, class_id: int = 1, **fields: object) -> dict:
    return {"id": 7, "rle": mask, "classId": class_id, **fields}


CASES = {
    "same mask and class": ([added("a", DISC)], [known(DISC)], {"identical": 1}),
    "other class": ([added("a", DISC, 2)], [known(DISC)], {"kept": ["a"], "otherClass": 1}),
    "other mask": ([added("a", HOLE)], [known(DISC)], {"kept": ["a"]}),
    "same area one pixel beside": (
        [added("a", MOVED)],
        [known(DISC)],
        {"kept": ["a"], "similar": 1},
    ),
    "same area one pixel beside, of another class": (
        [added("a", MOVED, 2)],
        [known(DISC)],
        {"kept": ["a"]},
    ),
    "within the import": (
        [added("a", DISC), added("b", DISC), added("c", DISC, 2)],
        [],
        {"kept": ["a", "c"], "identical": 1, "otherClass": 1},
    ),
    "proposal": (
        [added("a", DISC, 2), added("b", DISC, 2)],
        [known(DISC, proposal=True)],
        {"kept": ["a"], "identical": 1, "replaced": [7]},
    ),
    "proposal beside an object": (
        [added("a", DISC)],
        [known(DISC, id=3), known(DISC, proposal=True)],
        {"identical": 1},
    ),
    "box of an object that has another mask now": (
        [added("a", HOLE, box=BOX), added("b", HOLE, 2, box=BOX)],
        [known(DISC, box=BOX)],
        {"kept": ["b"], "identical": 1, "otherClass": 0},
    ),
}


@pytest.mark.parametrize(("new", "old", "expected"), CASES.values(), ids=CASES)
def test_objects_that_are_there_already_are_left_out(new, old, expected):
    assert run("withoutIdentical", added=new, known=old) == {**NOTHING, **expected}


def test_runs_of_length_0_do_not_make_another_mask():
    split = {"size": [3, 4], "counts": compressed([4, 1, 0, 0, 7])}
    plain = np.zeros((3, 4), bool)
    plain[1, 1] = True
    joined = rle(plain)
    assert split["counts"] != joined["counts"]
    found = run("withoutIdentical", added=[added("a", split)], known=[known(joined)])
    assert found == {**NOTHING, "identical": 1}


def compressed(counts: list[int]) -> str:
    """Return small run lengths in COCO's compressed form."""
    text = ""
    for index, count in enumerate(counts):
        value = count - counts[index - 2] if index > 2 else count
        text += chr(48 + (value & 31))
    return text
