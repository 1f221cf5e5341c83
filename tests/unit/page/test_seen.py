"""The page compares how the service sees an image with what it draws."""

import pytest

from tests.unit.page.formats import run

DRAWN = {"name": "a.jpg", "width": 64, "height": 96, "orientation": 6}
DEEP = {"name": "a.png", "width": 64, "height": 96, "orientation": 1, "range": [5, 900]}
SIZE = {"width": 64, "height": 96}
SAME = {
    "the same": (DRAWN, {**SIZE, "orientation": 6}),
    "older service": (DRAWN, SIZE),
    "16 bits": (DEEP, {**SIZE, "orientation": 1, "range": [5, 900]}),
    "16 bits of an older service": ({**DEEP, "range": None}, SIZE),
}
DRAWABLE = {
    "mirrored": (DRAWN, {**SIZE, "orientation": 7}, {**SIZE, "orientation": 7}),
    "sides exchanged": (
        DRAWN,
        {"width": 96, "height": 64, "orientation": 3},
        {"width": 96, "height": 64, "orientation": 3},
    ),
    "another range": (
        DEEP,
        {**SIZE, "orientation": 1, "range": [0, 65535]},
        {**SIZE, "orientation": 1, "range": [0, 65535]},
    ),
    "no range": (DEEP, SIZE, {**SIZE, "orientation": 1, "range": None}),
    "turned, and a range instead of none": (
        {**DEEP, "range": None},
        {**SIZE, "orientation": 2, "range": [1, 2]},
        {**SIZE, "orientation": 2, "range": [1, 2]},
    ),
    "turned, and another range": (
        DEEP,
        {**SIZE, "orientation": 2, "range": [1, 2]},
        {**SIZE, "orientation": 2, "range": [1, 2]},
    ),
}
REFUSED = {
    "other sides of an older service": (DRAWN, {"width": 96, "height": 64}),
    "sides that no turn explains": (DRAWN, {"width": 96, "height": 64, "orientation": 6}),
    "same sides by another turn": (DRAWN, {**SIZE, "orientation": 1}),
    "scaled": (DRAWN, {"width": 32, "height": 48, "orientation": 6}),
    "no orientation": (DRAWN, {**SIZE, "orientation": 0}),
    "a text": (DRAWN, {**SIZE, "orientation": "6"}),
    "no size": (DRAWN, {"orientation": 6}),
    "a range of 8 bits": (DRAWN, {**SIZE, "orientation": 6, "range": [0, 99]}),
}


@pytest.mark.parametrize(("drawn", "answer"), SAME.values(), ids=SAME)
def test_equal_pictures_are_accepted(drawn, answer):
    assert run("checkSeen", drawn=drawn, answer=answer) is None


@pytest.mark.parametrize(("drawn", "answer", "view"), DRAWABLE.values(), ids=DRAWABLE)
def test_another_turn_or_range_says_how_to_draw_the_picture(drawn, answer, view):
    found = run("checkSeen", drawn=drawn, answer=answer)
    assert found["view"] == view
    assert drawn["name"] in found["message"]


@pytest.mark.parametrize(("drawn", "answer"), REFUSED.values(), ids=REFUSED)
def test_picture_that_cannot_be_drawn_is_refused(drawn, answer):
    found = run("checkSeen", drawn=drawn, answer=answer)
    assert found["view"] is None
    assert drawn["name"] in found["message"]


def test_another_file_than_the_one_that_was_sent_is_refused():
    assert run("checkFile", got="a" * 64, sent="a" * 64) is None
    assert run("checkFile", got="a" * 64, sent=None) is None
    assert "another file than a.png" in run("checkFile", got="a" * 64, sent="b" * 64)
