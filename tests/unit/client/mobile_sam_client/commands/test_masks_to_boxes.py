"""`mobile-sam masks --to boxes`: the data set with the boxes of its masks, in its own format.

The fake service leaves out two pixels at each side of a box.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from mobile_sam_client.datasets import Dataset, read_dataset
from tests.unit.client.mobile_sam_client.commands.fake_sam import SQUARES, FakeSam, picture
from tests.unit.client.mobile_sam_client.fake_service import rotated_90

LOOSE = [[2, 4, 22, 24], [30, 10, 50, 34]]
"""Boxes of the classes cat and dog in an image of 60 x 40 pixels."""
TIGHT = [[4, 6, 20, 22], [32, 12, 48, 32]]
CLASSES = ("cat", "dog")
WIDTH, HEIGHT = 60, 40


@pytest.fixture(autouse=True)
def inset(sam: FakeSam) -> None:
    sam.inset = 2


def coco(boxes: list[list[int]]) -> dict[str, Any]:
    annotations = [
        {"id": 5 + i, "image_id": 1, "category_id": 1 + i % 2, "bbox": [x0, y0, x1 - x0, y1 - y0]}
        for i, (x0, y0, x1, y1) in enumerate(boxes)
    ]
    return {
        "images": [{"id": 1, "file_name": "images/a.png", "width": WIDTH, "height": HEIGHT}],
        "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog", "color": "#00ff00"}],
        "annotations": annotations,
    }


def write_coco(data: Path) -> None:
    (data / "boxes.json").write_text(json.dumps(coco(LOOSE)))


def write_yolo(data: Path) -> None:
    lines = ""
    for number, (x0, y0, x1, y1) in enumerate(LOOSE):
        centre = f"{(x0 + x1) / 2 / WIDTH} {(y0 + y1) / 2 / HEIGHT}"
        lines += f"{number} {centre} {(x1 - x0) / WIDTH} {(y1 - y0) / HEIGHT} 0.{number + 5}\n"
    (data / "labels").mkdir()
    (data / "labels" / "a.txt").write_text(lines)
    (data / "data.yaml").write_text("names: [cat, dog]\n")


def write_voc(data: Path) -> None:
    objects = ""
    for name, (x0, y0, x1, y1) in zip(CLASSES, LOOSE, strict=True):
        corners = f"<xmin>{x0 + 1}</xmin><ymin>{y0 + 1}</ymin><xmax>{x1}</xmax><ymax>{y1}</ymax>"
        box = f"<bndbox>{corners}</bndbox>"
        objects += f"<object><name>{name}</name><difficult>1</difficult>{box}</object>"
    (data / "Annotations").mkdir()
    content = f"<annotation><filename>a.png</filename>{objects}</annotation>"
    (data / "Annotations" / "a.xml").write_text(content)


def write_label_studio(data: Path) -> None:
    results = []
    for name, (x0, y0, x1, y1) in zip(CLASSES, LOOSE, strict=True):
        value = {
            "x": 100 * x0 / WIDTH,
            "y": 100 * y0 / HEIGHT,
            "width": 100 * (x1 - x0) / WIDTH,
            "height": 100 * (y1 - y0) / HEIGHT,
            "rectanglelabels": [name],
        }
        tags = {"from_name": "mine", "to_name": "photo"}
        results.append({"id": f"r-{name}", "type": "rectanglelabels", "value": value, **tags})
    task = {"id": 1, "data": {"photo": "images/a.png"}, "annotations": [{"result": results}]}
    (data / "tasks.json").write_text(json.dumps([task]))


def write_csv(data: Path) -> None:
    lines = ["image,x0,y0,x1,y1,label,id,by"]
    for number, (name, box) in enumerate(zip(CLASSES, LOOSE, strict=True)):
        lines.append(f"images/a.png,{','.join(map(str, box))},{name},{number + 7},me")
    (data / "boxes.csv").write_text("\n".join(lines))


WRITERS = {
    "coco": write_coco,
    "yolo": write_yolo,
    "voc": write_voc,
    "label-studio": write_label_studio,
    "csv": write_csv,
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "images").mkdir(parents=True)
    (folder / "images" / "a.png").write_bytes(picture(1))
    return folder


def read_again(tmp_path: Path, form: str) -> Dataset:
    """Read the written files beside the image, as the same format."""
    root = tmp_path / "found"
    names = sorted(
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.is_file() and "records" not in path.parts and path.name != "failures.json"
    )
    image = picture(1)
    (root / "images").mkdir(exist_ok=True)
    (root / "images" / "a.png").write_bytes(image)
    return read_dataset(form, [*names, "images/a.png"], lambda name: (root / name).open("rb"))


def manifest(tmp_path: Path) -> list[dict[str, Any]]:
    lines = (tmp_path / "found" / "manifest.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("form", WRITERS)
def test_boxes_of_the_masks_are_written_in_the_format_of_the_data_set(run, data, tmp_path, form):
    WRITERS[form](data)
    done = run(f"masks data --format {form} --to boxes --out found --json")
    assert done.exit_code == 0, done.output
    counts = json.loads(done.stdout)
    assert (counts["boxes"], counts["kept"], counts["lost"]) == (2, 0, 0)
    again = read_again(tmp_path, form)
    assert again.failures == []
    image = again.images["images/a.png"]
    scale = (WIDTH, HEIGHT) * 2 if image.relative else (1, 1, 1, 1)
    assert [item.category["name"] for item in image.objects] == list(CLASSES)
    for item, box in zip(image.objects, TIGHT, strict=True):
        pixels = [value * side for value, side in zip(item.shape, scale, strict=True)]
        assert pixels == pytest.approx(box, abs=0.001)
    assert [line["box"] for line in manifest(tmp_path)] == TIGHT


FURTHER = {
    "coco": lambda item: item.fields["id"],
    "yolo": lambda item: item.fields["source_score"],
    "voc": lambda item: item.fields["difficult"],
    "label-studio": lambda item: (item.fields["source_id"], item.fields["from_name"]),
    "csv": lambda item: (item.fields["id"], item.fields["by"]),
}
EXPECTED_FURTHER = {
    "coco": [5, 6],
    "yolo": [0.5, 0.6],
    "voc": ["1", "1"],
    "label-studio": [("r-cat", "mine"), ("r-dog", "mine")],
    "csv": [(7, "me"), (8, "me")],
}


@pytest.mark.parametrize("form", WRITERS)
def test_further_fields_are_kept_with_tight_boxes(run, data, tmp_path, form):
    WRITERS[form](data)
    assert run(f"masks data --format {form} --to boxes --out found").exit_code == 0
    items = read_again(tmp_path, form).images["images/a.png"].objects
    assert [FURTHER[form](item) for item in items] == EXPECTED_FURTHER[form]


def test_objects_whose_mask_is_implausible_keep_their_box_and_are_listed(run, sam, data, tmp_path):
    """A box without a mask, one whose mask has another place, one outside, and a sound one."""
    boxes = [[1, 1, 4, 4], [0, 0, 6, 6], [70, 5, 80, 9], LOOSE[0]]
    (data / "boxes.json").write_text(json.dumps(coco(boxes)))
    done = run("masks data --format coco --to boxes --out found")
    assert done.exit_code == 1
    assert [(line["status"], line["box"], line["note"]) for line in manifest(tmp_path)] == [
        ("kept", boxes[0], "the mask is empty; its box was kept"),
        (
            "kept",
            boxes[1],
            "the box around the mask is another one, with an IoU of 0.11; its box was kept",
        ),
        ("kept", boxes[2], "outside of the image; its box was kept"),
        ("box", TIGHT[0], ""),
    ]
    listed = json.loads((tmp_path / "found" / "failures.json").read_text())
    assert [one["object"] for one in listed] == [5, 6, 7]
    written = json.loads((tmp_path / "found" / "annotations.json").read_text())
    assert [one["bbox"] for one in written["annotations"]] == [
        [1, 1, 3, 3],
        [0, 0, 6, 6],
        [70, 5, 10, 4],
        [4, 6, 16, 16],
    ]


def test_mask_that_reaches_all_sides_of_the_image_is_no_box(run, sam, data, tmp_path):
    sam.inset = -6
    (data / "boxes.json").write_text(json.dumps(coco([[5, 5, 55, 35]])))
    assert run("masks data --format coco --to boxes --out found").exit_code == 1
    (line,) = manifest(tmp_path)
    assert line["box_iou"] > 0.5
    assert (line["status"], line["box"]) == ("kept", [5, 5, 55, 35])
    assert line["note"] == "the mask reaches all sides of the image; its box was kept"


def test_masks_below_the_score_keep_their_box(run, data, tmp_path):
    write_coco(data)
    done = run("masks data --format coco --to boxes --out found --min-score 0.8")
    assert done.exit_code == 1
    assert [line["status"] for line in manifest(tmp_path)] == ["kept", "kept"]
    assert [line["box"] for line in manifest(tmp_path)] == LOOSE
    review = json.loads((tmp_path / "found" / "review.json").read_text())
    assert len(review["annotations"]) == 2


def test_points_get_the_box_of_their_mask(run, data, tmp_path):
    (data / "boxes.csv").write_text("image,x,y,label\nimages/a.png,5,5,cat\n")
    assert run("masks data --format csv --to boxes --out found").exit_code == 0
    (item,) = read_again(tmp_path, "csv").images["images/a.png"].objects
    x0, y0, x1, y1 = SQUARES[0]
    assert item.shape == [x0 + 2, y0 + 2, x1 - 2, y1 - 2]


def test_csv_with_boxes_and_points_becomes_boxes_only(run, data, tmp_path):
    lines = [
        "image,x0,y0,x1,y1,x,y,label",
        "images/a.png,,,,,5,5,cat",
        "images/a.png,2,4,22,24,,,dog",
    ]
    (data / "boxes.csv").write_text("\n".join(lines))
    assert run("masks data --format csv --to boxes --out found").exit_code == 0
    header, *_ = (tmp_path / "found" / "boxes.csv").read_text().splitlines()
    assert header == "image,x0,y0,x1,y1,label,id"
    again = read_again(tmp_path, "csv")
    assert again.failures == []
    point, box = again.images["images/a.png"].objects
    x0, y0, x1, y1 = SQUARES[0]
    assert (point.shape, point.category["name"]) == ([x0 + 2, y0 + 2, x1 - 2, y1 - 2], "cat")
    assert (box.shape, box.category["name"]) == (TIGHT[0], "dog")


def test_coco_images_without_boxes_get_the_displayed_size(run, data, tmp_path):
    (data / "images" / "b.jpg").write_bytes(picture(2, (60, 40), "JPEG", exif=rotated_90()))
    (data / "images" / "c.png").write_bytes(b"no image")
    document = coco(LOOSE)
    document["images"] += [
        {"id": 2, "file_name": "images/b.jpg"},
        {"id": 3, "file_name": "images/c.png"},
    ]
    (data / "boxes.json").write_text(json.dumps(document))
    done = run("masks data --format coco --to boxes --out found")
    assert done.exit_code == 1
    written = json.loads((tmp_path / "found" / "annotations.json").read_text())
    sizes = {one["file_name"]: (one["width"], one["height"]) for one in written["images"]}
    assert sizes == {"images/a.png": (60, 40), "images/b.jpg": (40, 60)}
    (failure,) = json.loads((tmp_path / "found" / "failures.json").read_text())
    assert failure["file"] == "images/c.png"


def test_unknown_target_is_wrong_usage(run, sam, data):
    write_coco(data)
    done = run("masks data --format coco --to box --out found")
    assert done.exit_code == 2
    assert "'boxes'" in done.stderr
    assert not sam.requests
