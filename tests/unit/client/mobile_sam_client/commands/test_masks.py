"""`mobile-sam masks`: files, reports and resumption."""

import json
import os

import cv2
import numpy as np
import pytest
import yaml
from PIL import Image
from pycocotools.coco import COCO

from tests.unit.client.mobile_sam_client.commands.fake_sam import picture
from tests.unit.client.mobile_sam_client.fake_service import rotated_90
from tests.unit.page.formats import read as read_by_page

MASKS = "masks data --format coco --out found --concurrency 1"
BOXES = {
    "a.png": [[1, 2, 10, 12], [40, 30, 10, 6]],
    "sub/b.png": [[0, 0, 30, 20]],
    "sub/c.png": [[5, 5, 20, 20]],
}


@pytest.fixture
def document() -> dict:
    """COCO with three images, 60 x 40 pixels, and the boxes above."""
    images = [
        {"id": 10 + i, "file_name": name, "width": 60, "height": 40} for i, name in enumerate(BOXES)
    ]
    boxes = [(10 + i, box) for i, name in enumerate(BOXES) for box in BOXES[name]]
    annotations = [
        {"id": 100 + i, "image_id": image_id, "category_id": 2 + i % 2, "bbox": box, "by": "me"}
        for i, (image_id, box) in enumerate(boxes)
    ]
    categories = [{"id": 3, "name": "dog"}, {"id": 2, "name": "cat"}]
    return {
        "images": images,
        "annotations": annotations,
        "categories": categories,
        "licenses": [{"id": 1}],
    }


@pytest.fixture
def data(tmp_path, document):
    """Folder of the data set."""
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    for number, name in enumerate(BOXES):
        (folder / name).write_bytes(picture(number))
    write(folder, document)
    return folder


def write(data, document) -> None:
    (data / "boxes.json").write_text(json.dumps(document))


def manifest(tmp_path) -> dict[int, dict]:
    """Return the lines by id."""
    lines = [
        json.loads(line)
        for line in (tmp_path / "found" / "manifest.jsonl").read_text().splitlines()
    ]
    found = {line["id"]: line for line in lines}
    assert len(found) == len(lines)
    return found


def failures(tmp_path) -> list[tuple]:
    return [
        (failure["file"], failure.get("object"), failure["reason"])
        for failure in json.loads((tmp_path / "found" / "failures.json").read_text())
    ]


def test_coco_keeps_ids_and_fields_and_has_a_mask_per_box(run, sam, data, tmp_path):
    done = run(MASKS)
    assert done.exit_code == 0, done.output
    loaded = COCO(tmp_path / "found" / "annotations.json")
    assert loaded.dataset["licenses"] == [{"id": 1}]
    assert [(image["id"], image["file_name"]) for image in loaded.dataset["images"]] == [
        (10, "a.png"),
        (11, "sub/b.png"),
        (12, "sub/c.png"),
    ]
    assert loaded.dataset["categories"] == [{"id": 3, "name": "dog"}, {"id": 2, "name": "cat"}]
    first = loaded.loadAnns(100)[0]
    assert {
        name: first[name]
        for name in ("image_id", "category_id", "bbox", "area", "score", "box_iou", "by")
    } == {
        "image_id": 10,
        "category_id": 2,
        "bbox": [1, 2, 10, 12],
        "area": 120,
        "score": 0.75,
        "box_iou": 1.0,
        "by": "me",
    }
    assert loaded.annToMask(first)[2:14, 1:11].all()
    assert next(fields["prompts"] for _, fields in sam.requests) == [
        {"box": [1, 2, 11, 14]},
        {"box": [40, 30, 50, 36]},
    ]
    assert manifest(tmp_path)[103] == {
        "image": "sub/c.png",
        "id": 103,
        "class": "dog",
        "shape": [5, 5, 25, 25],
        "status": "mask",
        "area": 400,
        "bbox": [5, 5, 20, 20],
        "score": 0.75,
        "box_iou": 1.0,
        "note": "",
    }
    assert "wrote found: annotations.json, manifest.jsonl, failures.json, records\n" in done.stdout


def test_polygons_are_the_masks(run, sam, data, tmp_path):
    assert run(f"{MASKS} --to coco-polygons").exit_code == 0
    loaded = COCO(tmp_path / "found" / "annotations.json")
    for found in loaded.loadAnns(loaded.getAnnIds()):
        assert isinstance(found["segmentation"], list)
        x, y, width, height = found["bbox"]
        mask = loaded.annToMask(found)
        assert mask.sum() == mask[y : y + height, x : x + width].sum() == found["area"]


def test_yolo_labels_are_polygons_with_the_classes(run, sam, data, tmp_path):
    assert run(f"{MASKS} --to yolo-seg").exit_code == 0
    names = yaml.safe_load((tmp_path / "found" / "data.yaml").read_text())
    assert names == {"train": "images", "val": "images", "names": ["dog", "cat"]}
    number, *points = (tmp_path / "found" / "labels" / "sub" / "b.txt").read_text().split()
    mask = np.zeros((400, 600), np.uint8)
    corners = np.round(np.reshape(np.array(points, float), (-1, 2)) * (600, 400)).astype(np.int32)
    cv2.fillPoly(mask, [corners], (1,))
    assert number == "1"
    assert mask[:200, :300].all()
    assert mask.sum() == 201 * 301  # OpenCV paints the edge too


def test_png_maps_have_ids_and_object_numbers(run, sam, data, tmp_path):
    assert run(f"{MASKS} --to png").exit_code == 0
    maps = {
        name: np.asarray(Image.open(tmp_path / "found" / name / "a.png"))
        for name in ("classes", "instances")
    }
    assert (maps["classes"][5, 5], maps["instances"][5, 5]) == (2, 1)
    assert (maps["classes"][33, 45], maps["instances"][33, 45]) == (3, 2)
    assert maps["classes"][0, 0] == 0
    classes = json.loads((tmp_path / "found" / "classes.json").read_text())
    assert [(each["id"], each["name"]) for each in classes] == [(3, "dog"), (2, "cat")]


def test_masks_below_the_score_go_to_the_review_list(run, sam, data, tmp_path):
    assert run(f"{MASKS} --min-score 0.8").exit_code == 0
    assert json.loads((tmp_path / "found" / "annotations.json").read_text())["annotations"] == []
    review = json.loads((tmp_path / "found" / "review.json").read_text())
    assert [found["id"] for found in review["annotations"]] == [100, 101, 102, 103]
    project, warnings = read_by_page({"review.json": json.dumps(review)})
    assert [len(image["objects"]) for image in project["images"]] == [2, 1, 1]
    assert warnings == []
    assert {line["status"] for line in manifest(tmp_path).values()} == {"review"}
    assert run(f"{MASKS} --min-score 0.7").exit_code == 0
    review = json.loads((tmp_path / "found" / "review.json").read_text())
    assert (review["annotations"], review["images"]) == ([], [])


def test_boxes_are_cut_to_the_image_and_others_reported(run, sam, data, document, tmp_path):
    boxes = [[50, 30, 20, 20], [70, 5, 5, 5], [5, 5, 0, 9], [59.9, 5, 0.4, 5]]
    for annotation, box in zip(document["annotations"], boxes, strict=True):
        annotation.update(bbox=box, image_id=10)
    write(data, document)
    done = run(MASKS)
    assert done.exit_code == 1
    (_, fields), *_ = sam.requests
    assert fields["prompts"][0] == {"box": [50, 30, 60, 40]}
    lines = manifest(tmp_path)
    assert [(line["status"], line["note"]) for line in lines.values()] == [
        ("mask", "cut to the image"),
        ("lost", "outside of the image"),
        ("lost", "the box is empty"),
        ("mask", ""),
    ]
    assert failures(tmp_path) == [
        ("a.png", 100, "cut to the image"),
        ("a.png", 101, "outside of the image"),
        ("a.png", 102, "the box is empty"),
    ]
    assert done.stderr.splitlines()[-3:] == [
        "changed: a.png, object 100: cut to the image",
        "failed: a.png, object 101: outside of the image",
        "failed: a.png, object 102: the box is empty",
    ]


def test_counts_are_those_of_the_messages_and_of_the_file(run, sam, data, document, tmp_path):
    document["annotations"][0]["bbox"] = [50, 30, 20, 20]  # cut
    document["annotations"][1]["bbox"] = [30, 20, -10, -10]  # its corners are sorted
    document["annotations"][2]["bbox"] = [70, 5, 5, 5]  # outside
    document["annotations"][3]["category_id"] = 9  # named by its number
    document["annotations"].append({"image_id": 10, "category_id": 2, "bbox": ["a", 1, 2, 3]})
    document["images"].append({"id": 20, "file_name": "gone.png"})
    write(data, document)
    done = run(f"{MASKS} --json")
    assert done.exit_code == 1
    counts = json.loads(done.stdout)
    lines = done.stderr.splitlines()
    noted = json.loads((tmp_path / "found" / "failures.json").read_text())
    assert (counts["failed"], counts["changed"]) == (3, 3)
    assert sum(line.startswith("failed: ") for line in lines) == 3
    assert sum(line.startswith("changed: ") for line in lines) == 3
    assert len(noted) == 6
    assert sum("changed" in entry for entry in noted) == 3
    assert (counts["masks"], counts["lost"]) == (3, 1)


def test_regions_of_two_images_in_a_task_get_their_masks(run, sam, tmp_path):
    (tmp_path / "data").mkdir()
    for number, name in enumerate(("before.png", "after.png")):
        (tmp_path / "data" / name).write_bytes(picture(number))
    value = {"x": 50, "y": 50, "width": -50, "height": -50, "rectanglelabels": ["cat"]}
    results = [
        {"id": name, "type": "rectanglelabels", "to_name": name, "value": value}
        for name in ("image2", "image1")
    ]
    data = {"image1": "/data/upload/1/0a1b2c3d-before.png", "image2": "after.png", "before": "x"}
    tasks = [{"id": 1, "data": data, "annotations": [{"result": results}]}]
    (tmp_path / "data" / "tasks.json").write_text(json.dumps(tasks))
    assert run("masks data --format label-studio --out found").exit_code == 0
    assert {line["image"]: line["shape"] for line in manifest(tmp_path).values()} == {
        "after.png": [0, 0, 30, 20],
        "before.png": [0, 0, 30, 20],
    }


def test_empty_mask_is_reported_and_odd_names_are_written(run, sam, data, document, tmp_path):
    document["annotations"] = [{**document["annotations"][0], "bbox": [1.2, 2.2, 0.5, 0.5]}]
    document["categories"][0]["name"] = "\ud800: [cat] \N{CAT FACE}"
    write(data, document)
    assert run(f"{MASKS} --to yolo-seg").exit_code == 1
    assert failures(tmp_path) == [("a.png", 100, "the mask is empty")]
    assert (tmp_path / "found" / "labels" / "a.txt").read_text() == ""
    names = yaml.safe_load((tmp_path / "found" / "data.yaml").read_text())["names"]
    assert names == ["?: [cat] \N{CAT FACE}", "cat"]


def test_images_that_are_missing_damaged_linked_or_turned_are_reported(
    run, sam, data, document, tmp_path
):
    (tmp_path / "secret.png").write_bytes(picture(9))
    os.mkfifo(data / "pipe.json")
    (data / "sub" / "b.png").unlink()
    (data / "sub" / "b.png").symlink_to("../../secret.png")
    (data / "sub" / "c.png").write_bytes(b"no image")
    (data / "a.png").write_bytes(picture(1, exif=rotated_90()))
    document["images"].append({"id": 20, "file_name": "lost.png"})
    document["images"].append({"id": 21, "file_name": "sub/../../secret.png"})
    write(data, document)
    done = run(MASKS)
    assert done.exit_code == 1
    assert not sam.requests
    assert failures(tmp_path) == [
        ("a.png", None, "the data set says 60 x 40 pixels, but the displayed image has 40 x 60"),
        (
            "sub/c.png",
            None,
            "image: expected an image file that Pillow can read, got 8 other bytes",
        ),
        (
            "boxes.json",
            None,
            (
                "no PNG, JPEG or WebP file sub/b.png in the data set's folder; links outside are"
                " not followed"
            ),
        ),
        (
            "boxes.json",
            None,
            (
                "no PNG, JPEG or WebP file lost.png in the data set's folder; links outside are not"
                " followed"
            ),
        ),
        ("boxes.json", None, "expected a path in the data set's folder, got sub/../../secret.png"),
        ("boxes.json", 2, "its image 11 was left out or is not listed"),
    ]


def test_images_of_one_name_are_not_written_over_each_other(run, sam, data, document, tmp_path):
    (data / "images").mkdir()
    (data / "images" / "a.jpg").write_bytes(picture(8, kind="JPEG"))
    document["images"][1]["file_name"] = "images/a.jpg"
    write(data, document)
    assert run(f"{MASKS} --to yolo-seg").exit_code == 1
    assert failures(tmp_path) == [
        ("images/a.jpg", None, "its files would overwrite those of a.png")
    ]
    assert run(MASKS).exit_code == 0


def test_coco_has_the_size_of_images_without_objects(run, sam, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.png").write_bytes(picture(1))
    (data / "data.yaml").write_text("names: [cat]\n")
    (data / "a.txt").write_text("0 0.5 0.5 0.5 0.5\n")
    (data / "b.jpg").write_bytes(picture(2, (60, 40), "JPEG", exif=rotated_90()))
    (data / "b.txt").write_text("")
    (data / "c.png").write_bytes(b"no image")
    (data / "c.txt").write_text("")
    assert run("masks data --format yolo --out found").exit_code == 1
    images = json.loads((tmp_path / "found" / "annotations.json").read_text())["images"]
    sizes = [(image["file_name"], image["width"], image["height"]) for image in images]
    assert sizes == [("a.png", 60, 40), ("b.jpg", 40, 60)]
    ((file, _, reason),) = failures(tmp_path)
    assert file == "c.png"
    assert "expected an image file that Pillow can read" in reason


def test_points_and_relative_boxes_are_scaled_to_the_image(run, sam, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.png").write_bytes(picture(1))
    results = [
        {
            "id": "p",
            "type": "keypointlabels",
            "value": {"x": 50, "y": 25, "keypointlabels": ["eye"]},
        },
        {
            "id": "r",
            "type": "rectanglelabels",
            "value": {"x": 50, "y": 25, "width": 50, "height": 50},
        },
    ]
    tasks = [
        {"id": 1, "data": {"image": "/data/upload/a.png"}, "annotations": [{"result": results}]}
    ]
    (tmp_path / "data" / "tasks.json").write_text(json.dumps(tasks))
    assert run("masks data --format label-studio --out found").exit_code == 0
    (_, fields), *_ = sam.requests
    assert fields["prompts"] == [{"pos_coords": [[30, 10]]}, {"box": [30, 10, 60, 30]}]
    assert [(line["shape"], line["box_iou"]) for line in manifest(tmp_path).values()] == [
        ([30, 10], None),
        ([30, 10, 60, 30], 1.0),
    ]


def test_finished_images_are_skipped_unless_their_boxes_change(run, sam, data, document, tmp_path):
    run(MASKS)
    before = (tmp_path / "found" / "annotations.json").read_bytes()
    sam.requests.clear()
    assert run(MASKS).exit_code == 0
    assert not sam.requests
    assert (tmp_path / "found" / "annotations.json").read_bytes() == before
    document["annotations"][3]["bbox"] = [1, 1, 5, 5]
    document["annotations"][0]["category_id"] = 3
    write(data, document)
    assert run(MASKS).exit_code == 0
    assert [fields["prompts"] for _, fields in sam.requests] == [[{"box": [1, 1, 6, 6]}]]
    assert manifest(tmp_path)[100]["class"] == "dog"


def test_ctrl_c_keeps_finished_images_for_the_next_run(run, sam, data, ctrl_c, tmp_path):
    sam.replies[(data / "sub" / "b.png").read_bytes()] = ctrl_c
    done = run(MASKS)
    assert done.exit_code == 130
    assert done.stderr.endswith(
        "error: interrupted; 1 of 3 images are done, run the same command to resume\n"
    )
    assert list(manifest(tmp_path)) == [100, 101]
    sam.replies.clear()
    sam.requests.clear()
    assert run(MASKS).exit_code == 0
    assert len(sam.requests) == 2
    assert list(manifest(tmp_path)) == [100, 101, 102, 103]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("masks data --format coco --out data", 2, "must not be the folder of the data set"),
        ("masks data --format csv --out found", 1, "error: data: expected one .csv file"),
        ("masks absent --format csv --out found", 1, "error: absent: No such file or directory\n"),
        ("masks data --format tfrecord --out found", 2, "'tfrecord' is not one of"),
        (
            "masks data --format coco --out found --min-score 2",
            2,
            "Invalid value for '--min-score'",
        ),
    ],
)
def test_wrong_usage_is_reported_before_any_request(
    *, run, sam, data, tmp_path, arguments, code, message
):
    done = run(arguments)
    assert done.exit_code == code
    assert message in done.stderr
    assert not sam.requests
    assert not (tmp_path / "found").exists()
