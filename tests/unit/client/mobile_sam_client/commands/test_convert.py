"""`mobile-sam convert`: the annotations of a batch, in the forms of other tools."""

import json

import cv2
import numpy as np
import pytest
import supervision
import yaml

from tests.unit.client.mobile_sam_client.commands.fake_sam import picture
from tests.unit.client.mobile_sam_client.fake_service import rle, rotated_90

CONVERT = "convert found/annotations.json --images photos --out converted --to"


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


def test_objects_without_mask_and_box_are_left_out_of_yolo_and_counted(run, tmp_path):
    masks = [np.zeros((40, 60), bool), line_of_pixels(THIN["row"])]
    write_masks(tmp_path, masks, bbox=[5, 5, 0.2, 0.2])
    done = run(CONVERT, "yolo")
    assert done.exit_code == 1
    assert done.stdout == "wrote converted: 1 images, 1 objects left out\n"
    assert (
        done.stderr == "failed: a.png: an object of the class object has no mask; it was left out\n"
    )
    assert (painted(tmp_path, np.round) == masks[1]).all()


def test_objects_with_only_a_box_are_the_whole_box_in_yolo(run, tmp_path):
    masks = [np.zeros((40, 60), bool), line_of_pixels(THIN["row"])]
    write_masks(tmp_path, masks, bbox=[30, 20, 50, 10])
    done = run(CONVERT, "yolo")
    assert (done.exit_code, done.stdout) == (0, "wrote converted: 1 images\n")
    assert done.stderr == "note: 1 objects have only a box, which is written as their mask\n"
    masks[0][20:30, 30:60] = True
    assert (painted(tmp_path, np.round) == masks[0] | masks[1]).all()


@pytest.mark.usefixtures("annotated")
def test_rotated_photos_keep_the_displayed_size(run, tmp_path):
    assert run(CONVERT, "labelme").exit_code == 0
    document = json.loads((tmp_path / "converted" / "a.json").read_text())
    assert (document["imageWidth"], document["imageHeight"]) == (40, 60)


@pytest.mark.usefixtures("annotated")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "cannot convert found/annotations.json: 'categories' is missing"),
        ("no", "cannot convert found/annotations.json: Expecting value"),
        (
            (
                '{"annotations": [], "categories": [], "images": [{"id": 1, "file_name": "../",'
                ' "width": 9, "height": 9}]}'
            ),
            "outside the images directory",
        ),
    ],
)
def test_wrong_annotations_are_reported_in_one_line(run, tmp_path, content, message):
    (tmp_path / "found" / "annotations.json").write_text(content)
    done = run(CONVERT, "yolo")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert message in done.stderr
