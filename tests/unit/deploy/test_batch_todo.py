"""What a batch has left to do, and the files it is written as."""

from __future__ import annotations

import pytest

from deploy.ray.todo import BatchError, Image, Known, distinct, make_plan, outdated, parts, question

ASKED = question({"everything": {}})
IMAGE = Image("/p/a.jpg", 10, 20, ASKED)
ROW = Known(10, 20, "sha", ASKED, "weights", None, "part-1.parquet")


def test_image_without_a_row_is_to_be_done():
    assert make_plan([IMAGE], {}, "weights").todo == [IMAGE]


def test_image_with_its_row_needs_nothing():
    plan = make_plan([IMAGE], {IMAGE.path: ROW}, "weights")
    assert (plan.done, plan.todo, plan.unsure) == (1, [], [])


@pytest.mark.parametrize(
    "change",
    [{"asked": question({"everything": {"points_per_side": 8}})}, {"weights": "others"}, {"error": "no image"}],
    ids=["another question", "other weights", "failed before"],
)
def test_image_whose_row_says_something_else_is_done_again(change):
    assert make_plan([IMAGE], {IMAGE.path: ROW._replace(**change)}, "weights").todo == [IMAGE]


@pytest.mark.parametrize(
    "image",
    [IMAGE._replace(size=11), IMAGE._replace(mtime_ns=21), IMAGE._replace(mtime_ns=None), IMAGE._replace(size=None)],
    ids=["another size", "another time", "no time known", "gone"],
)
def test_image_whose_file_looks_different_is_to_be_read(image):
    plan = make_plan([image], {IMAGE.path: ROW}, "weights")
    assert (plan.done, plan.todo, plan.unsure) == (0, [], [image])


def test_rows_of_images_to_be_done_again_go_first():
    other = IMAGE._replace(path="/p/b.jpg")
    new = IMAGE._replace(path="/p/new.jpg")
    known = {IMAGE.path: ROW, other.path: ROW._replace(part="part-2.parquet"), "/p/c.jpg": ROW}
    assert outdated([IMAGE, new, other], known) == {"part-1.parquet": {IMAGE.path}, "part-2.parquet": {other.path}}


def test_parts_hold_every_image_once_in_order():
    images = [IMAGE._replace(path=f"/p/{number:03}.jpg") for number in range(10)]
    made = list(parts(images, 4, "weights"))
    assert [len(some) for _, some in made] == [4, 4, 2]
    assert [image for _, some in made for image in some] == images
    assert len({name for name, _ in made}) == 3


def test_part_of_the_same_images_and_questions_has_the_same_name_and_no_other():
    ((name, _),) = parts([IMAGE], 4, "weights")
    others = [
        next(parts([IMAGE._replace(path="/p/b.jpg")], 4, "weights")),
        next(parts([IMAGE._replace(asked=question({"prompts": []}))], 4, "weights")),
        next(parts([IMAGE], 4, "others")),
    ]
    assert next(parts([IMAGE._replace(mtime_ns=99)], 4, "weights"))[0] == name
    assert name not in [other for other, _ in others]


def test_questions_are_the_same_whatever_the_order_of_their_parameters():
    assert question({"everything": {"a": 1, "b": 2}}) == question({"everything": {"b": 2, "a": 1}})


def test_image_that_is_listed_twice_counts_once():
    other = IMAGE._replace(path="/o.jpg")
    assert distinct([IMAGE, other, IMAGE]) == [other, IMAGE]


def test_image_with_two_questions_is_refused():
    with pytest.raises(BatchError, match=r"^/p/a.jpg: expected each image once, got it with two different"):
        distinct([IMAGE, IMAGE._replace(asked=question({"prompts": []}))])
