"""`mobile-sam convert`: the annotations of a batch, in the forms of other tools."""

import json
import sys
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import pytest
import supervision
import yaml

from tests.unit.client.mobile_sam_client.commands.fake_sam import picture
from tests.unit.client.mobile_sam_client.fake_service import rle, rotated_90

CONVERT = "convert found/annotations.json --images photos --out converted --to"

FORMS = {"yolo": "labels/{}.txt", "voc": "{}.xml", "labelme": "{}.json"}
"""Paths of the files of an image, by its name without suffix."""


@pytest.fixture
def annotated(run, sam, tmp_path) -> None:
    """Annotate a photo that is displayed as 40 x 60 pixels with two squares."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(picture(1, (60, 40), "JPEG", exif=rotated_90()))
    assert run("batch photos --out found --no-overlays").exit_code == 0


@pytest.mark.usefixtures("annotated")
@pytest.mark.parametrize("form", ["yolo", "voc", "labelme"])
def test_objects_are_those_of_the_batch(run, tmp_path, form):
    done = run(CONVERT, form)
    assert (done.exit_code, done.stdout) == (0, "wrote converted: 1 images\n")
    photos, out, data = (
        str(tmp_path / "photos"),
        tmp_path / "converted",
        supervision.DetectionDataset,
    )
    read = {
        "yolo": lambda: data.from_yolo(photos, str(out / "labels"), str(out / "data.yaml")),
        "voc": lambda: data.from_pascal_voc(photos, str(out)),
        "labelme": lambda: data.from_labelme(photos, str(out)),
    }
    (detections,) = read[form]().annotations.values()
    assert np.allclose(sorted(detections.xyxy.tolist()), [[0, 0, 20, 20], [30, 10, 40, 20]], atol=1)
    if form == "yolo":
        names = yaml.safe_load((out / "data.yaml").read_text())
        assert names == {"train": "images", "val": "images", "names": ["object"]}


THIN = {
    "pixel": [[20, 10], [20, 10]],
    "row": [[5, 12], [30, 12]],
    "column": [[58, 3], [58, 20]],
    "diagonal": [[3, 3], [9, 9]],
    "other diagonal": [[9, 3], [3, 9]],
}
"""First and last pixels of lines, x then y."""


def write_masks(tmp_path, masks: list[np.ndarray], bbox: tuple | list = (1, 1, 5, 5)) -> None:
    """Write COCO annotations of an image with 60 x 40 pixels."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "found").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(picture(1))
    annotations = [
        {
            "id": number,
            "image_id": 1,
            "category_id": 1,
            "iscrowd": 0,
            "bbox": [*bbox],
            "segmentation": rle(mask),
        }
        for number, mask in enumerate(masks, 1)
    ]
    document = {
        "images": [{"id": 1, "file_name": "a.png", "width": 60, "height": 40}],
        "categories": [{"id": 1, "name": "object"}],
        "annotations": annotations,
    }
    (tmp_path / "found" / "annotations.json").write_text(json.dumps(document))


def change(tmp_path, apply: Callable[[dict[str, Any]], object]) -> None:
    """Change the COCO annotations."""
    path = tmp_path / "found" / "annotations.json"
    document = json.loads(path.read_text())
    apply(document)
    path.write_text(json.dumps(document))


def square() -> np.ndarray:
    mask = np.zeros((40, 60), bool)
    mask[10:20, 10:30] = True
    return mask


def add_image(tmp_path, name: str, content: bytes) -> None:
    """Add an image with a square to the COCO annotations."""
    path = tmp_path / "photos" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)

    def apply(document: dict[str, Any]) -> None:
        number = len(document["images"]) + 1
        image = {"id": number, "file_name": name, "width": 60, "height": 40}
        document["images"].append(image)
        annotation = document["annotations"][0]
        document["annotations"].append({**annotation, "id": 100 + number, "image_id": number})

    change(tmp_path, apply)


def line_of_pixels(ends: list[list[int]]) -> np.ndarray:
    mask = np.zeros((40, 60), np.uint8)
    cv2.line(mask, ends[0], ends[1], (1,))
    return mask.astype(bool)


def painted(tmp_path, to_pixels) -> np.ndarray:
    """Return the union of the polygons in a label file; a line that is no polygon is an
    assertion.
    """
    mask = np.zeros((40, 60), np.uint8)
    for line in (tmp_path / "converted" / "labels" / "a.txt").read_text().splitlines():
        number, *values = line.split()
        assert number == "0"
        assert len(values) >= 6
        assert len(values) % 2 == 0
        points = np.reshape(np.array(values, float), (-1, 2)) * (60, 40)
        cv2.fillPoly(mask, [to_pixels(points).astype(np.int32)], (1,))
    return mask.astype(bool)


@pytest.mark.parametrize("to_pixels", [np.floor, np.round], ids=["truncated", "rounded"])
@pytest.mark.parametrize("ends", THIN.values(), ids=THIN)
def test_thin_masks_are_polygons_in_yolo(run, tmp_path, ends, to_pixels):
    mask = line_of_pixels(ends)
    write_masks(tmp_path, [mask])
    done = run(CONVERT, "yolo")
    assert (done.exit_code, done.stdout) == (0, "wrote converted: 1 images\n")
    assert (painted(tmp_path, to_pixels) == mask).all()


def test_thin_islands_beside_others_are_kept_in_yolo(run, tmp_path):
    masks = [line_of_pixels(ends) for ends in THIN.values()]
    masks[0][25:35, 30:50] = True
    masks[0][28:30, 35:40] = False  # a hole
    write_masks(tmp_path, masks)
    assert run(CONVERT, "yolo").exit_code == 0
    assert (painted(tmp_path, np.round) == np.logical_or.reduce(masks)).all()
    assert len((tmp_path / "converted" / "labels" / "a.txt").read_text().splitlines()) == 6


@pytest.mark.parametrize("form", FORMS)
def test_objects_without_mask_and_box_are_left_out_and_listed(run, tmp_path, form):
    masks = [np.zeros((40, 60), bool), line_of_pixels(THIN["row"])]
    write_masks(tmp_path, masks, bbox=[5, 5, 0.2, 0.2])
    done = run(CONVERT, form)
    assert done.exit_code == 1
    assert done.stdout == "wrote converted: 1 images, 1 objects left out\n"
    assert done.stderr == "failed: a.png, object 1: it has no mask, and no box in the image\n"
    if form == "yolo":
        assert (painted(tmp_path, np.round) == masks[1]).all()


EMPTY = {
    "zeros": rle(np.zeros((40, 60), bool)),
    "no polygons": [],
    "polygon without area": [[5, 5, 9, 5, 7, 5]],
}
"""Segmentations without pixels."""


@pytest.mark.parametrize("segmentation", EMPTY.values(), ids=EMPTY)
def test_objects_with_only_a_box_are_the_whole_box_in_yolo(run, tmp_path, segmentation):
    row = line_of_pixels(THIN["row"])
    write_masks(tmp_path, [row, row], bbox=[30, 20, 50, 10])
    change(tmp_path, lambda document: document["annotations"][0].update(segmentation=segmentation))
    done = run(CONVERT, "yolo")
    assert (done.exit_code, done.stdout) == (0, "wrote converted: 1 images\n")
    remark = "it has only a box, which is written as its mask"
    assert done.stderr == f"changed: a.png, object 1: {remark}\n"
    box = np.zeros((40, 60), bool)
    box[20:30, 30:60] = True
    assert (painted(tmp_path, np.round) == box | row).all()


@pytest.mark.parametrize("form", [*FORMS, "label-studio"])
def test_images_of_another_size_are_left_out_and_listed(run, tmp_path, form):
    write_masks(tmp_path, [square()])
    (tmp_path / "photos" / "a.png").write_bytes(picture(1, (120, 80)))
    done = run(CONVERT, form)
    assert done.exit_code == 1
    sizes = "the data set says 60 x 40 pixels, but the displayed image has 120 x 80"
    assert done.stderr == f"failed: a.png: {sizes}\n"
    written = [path.stem for path in (tmp_path / "converted").rglob("*") if path.is_file()]
    assert "a" not in written
    assert ("data" in written) == (form == "yolo")


@pytest.mark.parametrize("form", FORMS)
def test_ids_of_images_may_be_text(run, tmp_path, form):
    write_masks(tmp_path, [square()])
    change(tmp_path, lambda document: document["annotations"][0].update(image_id="1"))
    assert run(CONVERT, form).exit_code == 0
    text = (tmp_path / "converted" / FORMS[form].format("a")).read_text()
    marks = {"yolo": "0 ", "voc": "<name>object</name>", "labelme": '"label": "object"'}
    assert marks[form] in text


@pytest.mark.parametrize("form", FORMS)
def test_objects_of_no_image_are_listed(run, tmp_path, form):
    write_masks(tmp_path, [square(), square()])
    change(tmp_path, lambda document: document["annotations"][1].update(image_id=9))
    done = run(CONVERT, form)
    assert (done.exit_code, done.stdout) == (
        1,
        "wrote converted: 1 images, 1 objects left out\n",
    )
    reason = "its image 9 was left out or is not listed"
    assert done.stderr == f"failed: annotations.json, object 1: {reason}\n"


@pytest.mark.parametrize("form", FORMS)
def test_images_of_one_name_are_not_converted_over_each_other(run, tmp_path, form):
    write_masks(tmp_path, [square()])
    add_image(tmp_path, "other/a.jpg", picture(2, kind="JPEG"))
    add_image(tmp_path, "other/b.png", picture(3))
    done = run(CONVERT, form)
    assert done.exit_code == 1
    assert done.stdout == "wrote converted: 2 images, 1 objects left out\n"
    assert done.stderr == "failed: other/a.jpg: its files would overwrite those of a.png\n"
    # The files of an image in a subfolder have no subfolder.
    for name in ("a", "b"):
        assert (tmp_path / "converted" / FORMS[form].format(name)).stat().st_size


@pytest.mark.parametrize("form", FORMS)
def test_images_that_opencv_cannot_read_are_left_out_and_listed(run, tmp_path, form):
    write_masks(tmp_path, [square()])
    add_image(tmp_path, "b.png", picture(2)[:60])  # its size can be read
    done = run(CONVERT, form)
    assert (done.exit_code, done.stdout) == (
        1,
        "wrote converted: 1 images, 1 objects left out\n",
    )
    assert done.stderr == "failed: b.png: Could not read image from path: photos/b.png\n"
    assert (tmp_path / "converted" / FORMS[form].format("a")).exists()
    assert not (tmp_path / "converted" / FORMS[form].format("b")).exists()


def test_class_names_that_are_no_xml_leave_their_images_out_of_voc(run, tmp_path):
    write_masks(tmp_path, [square()])
    change(tmp_path, lambda document: document["categories"][0].update(name="a\x01"))
    done = run(CONVERT, "voc")
    assert done.exit_code == 1
    assert done.stderr.startswith("failed: a.png: not well-formed")


def test_many_changes_do_not_hide_what_is_left_out(run, tmp_path):
    write_masks(tmp_path, [np.zeros((40, 60), bool)] * 25)
    change(tmp_path, lambda document: document["annotations"][24].update(bbox=[70, 50, 5, 5]))
    done = run(CONVERT, "yolo")
    assert (done.exit_code, done.stdout) == (
        1,
        "wrote converted: 1 images, 1 objects left out\n",
    )
    first, *_, last = done.stderr.splitlines()
    assert first == "failed: a.png, object 25: it has no mask, and no box in the image"
    assert last == "5 more failures and changes"


@pytest.mark.parametrize("form", FORMS)
def test_images_without_objects_get_a_file(run, tmp_path, form):
    write_masks(tmp_path, [])
    assert run(CONVERT, form).exit_code == 0
    text = (tmp_path / "converted" / FORMS[form].format("a")).read_text()
    assert (text == "") == (form == "yolo")


def test_classes_are_sorted_by_their_id_in_yolo(run, tmp_path):
    write_masks(tmp_path, [square()])
    cat = {"id": 0, "name": "cat"}
    change(tmp_path, lambda document: document["categories"].append(cat))
    assert run(CONVERT, "yolo").exit_code == 0
    out = tmp_path / "converted"
    assert yaml.safe_load((out / "data.yaml").read_text())["names"] == ["cat", "object"]
    assert (out / "labels" / "a.txt").read_text().startswith("1 ")


def test_missing_package_is_named(run, tmp_path, monkeypatch):
    write_masks(tmp_path, [square()])
    monkeypatch.setitem(sys.modules, "supervision", None)
    done = run(CONVERT, "yolo")
    expected = "error: convert needs another package: pip install 'supervision>=0.31'\n"
    assert (done.exit_code, done.stderr) == (1, expected)


@pytest.mark.usefixtures("annotated")
def test_rotated_photos_keep_the_displayed_size(run, tmp_path):
    assert run(CONVERT, "labelme").exit_code == 0
    document = json.loads((tmp_path / "converted" / "a.json").read_text())
    assert (document["imageWidth"], document["imageHeight"]) == (40, 60)


@pytest.mark.usefixtures("annotated")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "{}",
            "error: cannot convert found/annotations.json: expected COCO with the lists "
            "categories, images, annotations",
        ),
        ("no", "error: cannot convert found/annotations.json: not valid JSON: Expecting value"),
        (
            (
                '{"annotations": [], "categories": [], "images": [{"id": 1, "file_name": "../",'
                ' "width": 9, "height": 9}]}'
            ),
            "failed: annotations.json, image 0: expected a path in the data set's folder, got ../",
        ),
    ],
)
def test_wrong_annotations_are_reported_in_one_line(run, tmp_path, content, message):
    (tmp_path / "found" / "annotations.json").write_text(content)
    done = run(CONVERT, "yolo")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith(message)
