"""Work of several people: a project in parts, agreement of two versions, names of annotators."""

import csv
import io
import json
from typing import Any

import numpy as np
import pytest

from tests.unit.page.formats import FormatError, project_of, read, rle, run, sizes_of, write

FRAMES = [f"frames/{number:03}.jpg" for number in range(23)]


def parts(names: list[str], count: int, shared: int = 0, seed: int = 0) -> list[list[str]]:
    """Return the names of the images in each part."""
    images = [{"name": name} for name in names]
    found = run("parts", images=images, parts={"count": count, "shared": shared, "seed": seed})
    return [[image["name"] for image in part] for part in found]


def labelled(x: int, width: int, category: str = "cat", **fields: str) -> dict:
    """Return an object whose mask is `width` x 10 pixels of an image of 100 x 20."""
    mask = np.zeros((20, 100), bool)
    mask[5:15, x : x + width] = True
    return {"mask": rle(mask), "category": category, "name": "object 1", **fields}


def compared(mine: list[dict], theirs: list[dict]) -> Any:
    """Return the comparisons, with what the page says about them."""
    return run("compared", images=[{"name": "a.png", "mine": mine, "theirs": theirs}])


def test_images_are_in_one_part_each_and_the_shared_ones_in_all():
    found = parts(FRAMES, 4, shared=3)
    shared = set.intersection(*(set(part) for part in found))
    assert len(shared) == 3
    own = [name for part in found for name in part if name not in shared]
    assert sorted(own) == sorted(set(FRAMES) - shared)
    assert [len(part) for part in found] == [8, 8, 8, 8]
    assert all(part == sorted(part) for part in found)


def test_parts_follow_the_seed_and_not_the_order():
    found = parts(FRAMES, 3, shared=2, seed=7)
    assert [set(part) for part in parts(FRAMES[::-1], 3, shared=2, seed=7)] == [
        set(part) for part in found
    ]
    assert parts(FRAMES, 3, shared=2, seed=8) != found


def test_shared_images_are_those_for_validation_with_the_same_seed():
    images = [{"name": name} for name in FRAMES]
    split = run("split", images=images, split={"share": 3 / len(FRAMES), "seed": 5})
    validation = {image["name"] for image in split if image["subset"] == "val"}
    found = parts(FRAMES, 2, shared=3, seed=5)
    assert set(found[0]) & set(found[1]) == validation


@pytest.mark.parametrize(("count", "shared"), [(3, 0), (2, 1), (2, 3)])
def test_more_parts_than_images_are_refused(count, shared):
    with pytest.raises(FormatError, match="images"):
        parts(["a.png", "b.png"], count, shared)


def test_all_images_may_be_in_every_part():
    assert parts(["a.png", "b.png"], 3, shared=2) == [["a.png", "b.png"]] * 3


def test_objects_are_paired_by_the_highest_iou():
    found = compared([labelled(0, 40), labelled(4, 40)], [labelled(2, 40), labelled(4, 41)])
    assert [(one["mine"], one["theirs"]) for one in found["comparisons"]] == [(0, 0), (1, 1)]
    assert [one["iou"] for one in found["comparisons"]] == pytest.approx([38 / 42, 40 / 41])
    assert [one["difference"] for one in found["comparisons"]] == ["", ""]
    assert found["agreement"] == pytest.approx((38 / 42 + 40 / 41) / 2)


def test_equal_masks_are_paired_by_class():
    mine = [labelled(0, 40, "cat"), labelled(0, 40, "dog")]
    found = compared(mine, mine[::-1])
    assert [(one["mine"], one["theirs"]) for one in found["comparisons"]] == [(0, 1), (1, 0)]
    assert found["agreement"] == 1


def test_differences_lose_no_object_by_default_and_count_zero_without_a_partner_of_the_class():
    mine = [labelled(0, 20), labelled(30, 20), labelled(60, 10), labelled(80, 10)]
    theirs = [labelled(0, 20, "dog"), labelled(34, 20), labelled(62, 16, "dog"), labelled(92, 8)]
    found = compared(mine, theirs)
    assert [
        (one["mine"], one["theirs"], one["difference"], one["choice"])
        for one in found["comparisons"]
    ] == [
        (0, 0, "other class", "mine"),
        (1, 1, "other outline", "mine"),
        (2, None, "only here", "mine"),
        (3, None, "only here", "mine"),
        (None, 2, "only there", "theirs"),
        (None, 3, "only there", "theirs"),
    ]
    assert found["agreement"] == pytest.approx(16 / 24 / 6)
    assert found["pairs"] == {"count": 2, "meanIou": pytest.approx((1 + 16 / 24) / 2)}


def test_images_without_objects_have_no_agreement():
    assert compared([], []) == {
        "comparisons": [],
        "agreement": None,
        "pairs": {"count": 0, "meanIou": None},
        "table": "image,class,iou,mine,theirs\r\n",
    }


def test_agreement_table_has_a_row_for_each_object_with_annotators():
    mine = [labelled(0, 20, by="Ann"), labelled(60, 10, name='"x", left')]
    found = compared(mine, [labelled(0, 20, "dog", by="Bo, B.")])
    assert list(csv.reader(io.StringIO(found["table"]))) == [
        ["image", "class", "iou", "mine", "theirs"],
        ["a.png", "cat / dog", "1.0000", "object 1 by Ann", "object 1 by Bo, B."],
        ["a.png", "cat", "0.0000", '"x", left', ""],
    ]


def test_coco_has_names_of_annotators_as_attributes_and_reads_them():
    project = project_of()
    first, second = project["images"][0]["objects"][:2]
    first["by"] = "Ann"
    files = write("coco", project)
    annotations = json.loads(files["annotations/instances.json"])["annotations"]
    assert annotations[0]["attributes"] == {"annotator": "Ann"}
    assert "attributes" not in annotations[1]
    again, warnings = read(files, sizes_of(project))
    assert warnings == []
    objects = {one["name"]: one for one in again["images"][0]["objects"]}
    assert objects[first["name"]]["by"] == "Ann"
    assert "by" not in objects[second["name"]]


def test_attributes_of_coco_that_are_no_name_are_ignored():
    project = project_of()
    files = write("coco", project)
    document = json.loads(files["annotations/instances.json"])
    values: list[Any] = [None, [], {"annotator": {"id": 3}}, {"annotator": " "}]
    for annotation, attributes in zip(document["annotations"], values, strict=False):
        annotation["attributes"] = attributes
    content = {"annotations/instances.json": json.dumps(document)}
    again, warnings = read(content, sizes_of(project))
    assert warnings == []
    assert len(document["annotations"]) >= len(values)
    assert not any("by" in one for image in again["images"] for one in image["objects"])


def test_coco_has_the_reasons_for_a_review_and_reads_them():
    project = project_of()
    first, second = project["images"][0]["objects"][:2]
    first["review"] = ["low score", "other place"]
    files = write("coco", project)
    document = json.loads(files["annotations/instances.json"])
    assert document["annotations"][0]["review"] == first["review"]
    document["annotations"][1]["review"] = ["low score", 3]
    again, warnings = read({"annotations/instances.json": json.dumps(document)}, sizes_of(project))
    assert warnings == []
    objects = {one["name"]: one for one in again["images"][0]["objects"]}
    assert objects[first["name"]]["review"] == first["review"]
    assert "review" not in objects[second["name"]]
