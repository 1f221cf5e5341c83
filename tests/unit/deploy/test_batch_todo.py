"""Plan and parts of a batch."""

from __future__ import annotations

import pytest

from deploy.ray.todo import BatchError, Image, Known, canonical_request, distinct, make_plan, outdated, parts

ASKED = canonical_request({"everything": {}})
IMAGE = Image("/p/a.jpg", 10, 20, ASKED)
ROW = Known(10, 20, "sha", ASKED, "weights", None, "part-1.parquet")


def test_image_without_row_is_unfinished():
    assert make_plan([IMAGE], {}, "weights").todo == [IMAGE]


def test_image_with_matching_row_is_finished():
    plan = make_plan([IMAGE], {IMAGE.path: ROW}, "weights")
    assert (plan.done, plan.todo, plan.unsure) == (1, [], [])


@pytest.mark.parametrize(
    "change",
    [
        {"asked": canonical_request({"everything": {"points_per_side": 8}})},
        {"weights": "others"},
        {"error": "no image"},
    ],
    ids=["other request", "other weights", "failed before"],
)
def test_image_with_outdated_row_is_unfinished(change):
    assert make_plan([IMAGE], {IMAGE.path: ROW._replace(**change)}, "weights").todo == [IMAGE]


@pytest.mark.parametrize(
    "image",
    [IMAGE._replace(size=11), IMAGE._replace(mtime_ns=21), IMAGE._replace(mtime_ns=None), IMAGE._replace(size=None)],
    ids=["other size", "other time", "unknown time", "missing"],
)
def test_image_with_other_size_or_time_is_unsure(image):
    plan = make_plan([image], {IMAGE.path: ROW}, "weights")
    assert (plan.done, plan.todo, plan.unsure) == (0, [], [image])


def test_outdated_rows_are_listed_per_part():
    other = IMAGE._replace(path="/p/b.jpg")
    new = IMAGE._replace(path="/p/new.jpg")
    known = {IMAGE.path: ROW, other.path: ROW._replace(part="part-2.parquet"), "/p/c.jpg": ROW}
    assert outdated([IMAGE, new, other], known) == {"part-1.parquet": {IMAGE.path}, "part-2.parquet": {other.path}}


def test_parts_contain_every_image_once_in_order():
    images = [IMAGE._replace(path=f"/p/{number:03}.jpg") for number in range(10)]
    chunks = list(parts(images, 4, "weights"))
    assert [len(chunk) for _, chunk in chunks] == [4, 4, 2]
    assert [image for _, chunk in chunks for image in chunk] == images
    assert len({name for name, _ in chunks}) == 3


def test_part_name_depends_on_images_requests_and_weights():
    ((name, _),) = parts([IMAGE], 4, "weights")
    others = [
        next(parts([IMAGE._replace(path="/p/b.jpg")], 4, "weights")),
        next(parts([IMAGE._replace(asked=canonical_request({"prompts": []}))], 4, "weights")),
        next(parts([IMAGE], 4, "others")),
    ]
    assert next(parts([IMAGE._replace(mtime_ns=99)], 4, "weights"))[0] == name
    assert name not in [other for other, _ in others]


def test_canonical_request_ignores_parameter_order():
    assert canonical_request({"everything": {"a": 1, "b": 2}}) == canonical_request({"everything": {"b": 2, "a": 1}})


def test_image_listed_twice_is_kept_once():
    other = IMAGE._replace(path="/o.jpg")
    assert distinct([IMAGE, other, IMAGE]) == [other, IMAGE]


def test_image_listed_with_two_requests_is_rejected():
    with pytest.raises(BatchError, match=r"^/p/a.jpg: listed twice with different prompts"):
        distinct([IMAGE, IMAGE._replace(asked=canonical_request({"prompts": []}))])
