"""`mobile-sam convert` to and from Label Studio, and the page with the same files."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.unit.page.formats import decode, project_of, read, sizes_of, write


@pytest.fixture
def project(tmp_path: Path) -> dict[str, Any]:
    """A project of the page, whose black images are in `images`."""
    document = project_of()
    for image in document["images"]:
        path = tmp_path / "images" / image["name"]
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (image["width"], image["height"])).save(path)
    return document


def save(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def objects_of(project: dict[str, Any]) -> Iterator[tuple]:
    """Yield image, class, name, score and run lengths of each object of a page's project."""
    names = {category["id"]: category["name"] for category in project["classes"]}
    for image in project["images"]:
        for one in image["objects"]:
            mask = decode(one["rle"])
            yield image["name"], names[one["categoryId"]], one["name"], one["score"], mask


def objects_in(coco: dict[str, Any]) -> Iterator[tuple]:
    """Yield the same of a COCO document."""
    classes = {category["id"]: category["name"] for category in coco["categories"]}
    images = {image["id"]: image["file_name"] for image in coco["images"]}
    for one in coco["annotations"]:
        mask = decode(one["segmentation"])
        yield images[one["image_id"]], classes[one["category_id"]], one["name"], one["score"], mask


def assert_same(found: Iterator[tuple], expected: Iterator[tuple]) -> None:
    found_list, expected_list = list(found), list(expected)
    assert [one[:-1] for one in found_list] == [one[:-1] for one in expected_list]
    assert len(found_list) == 30
    for (*_, mask), (*_, other) in zip(found_list, expected_list, strict=True):
        assert np.array_equal(mask, other)


def test_page_reads_what_it_has_written_for_label_studio(project):
    again, warnings = read(write("label-studio", project), sizes_of(project))
    assert (again, warnings) == (project, [])


def test_convert_reads_what_the_page_has_written_for_label_studio(run, project, tmp_path):
    save(tmp_path, write("label-studio", project))
    done = run("convert tasks.json --images images --to coco --out coco")
    assert (done.exit_code, done.stdout) == (0, "wrote coco: 4 images\n"), done.output
    coco = json.loads((tmp_path / "coco" / "annotations.json").read_text())
    assert_same(objects_in(coco), objects_of(project))
    assert coco["categories"] == project["classes"]


def test_page_reads_what_convert_has_written_for_label_studio(run, project, tmp_path):
    save(tmp_path, write("coco", project))
    done = run("convert annotations/instances.json --images images --to label-studio --out out")
    assert (done.exit_code, done.stdout) == (0, "wrote out: 4 images\n"), done.output
    files = {
        name: (tmp_path / "out" / name).read_bytes() for name in ("tasks.json", "label_config.xml")
    }
    again, warnings = read(files, sizes_of(project))
    assert (again, warnings) == (project, [])


def test_convert_and_the_page_write_the_same_for_label_studio(run, project, tmp_path):
    save(tmp_path, write("coco", project))
    done = run("convert annotations/instances.json --images images --to label-studio --out out")
    assert done.exit_code == 0, done.output
    page = write("label-studio", project)
    assert json.loads((tmp_path / "out" / "tasks.json").read_text()) == json.loads(
        page["tasks.json"]
    )
    assert (tmp_path / "out" / "label_config.xml").read_bytes() == page["label_config.xml"]


def test_convert_reads_what_it_has_written_for_label_studio(run, project, tmp_path):
    save(tmp_path, write("coco", project))
    forth = run("convert annotations/instances.json --images images --to label-studio --out out")
    back = run("convert out/tasks.json --images images --to coco --out again")
    assert (forth.exit_code, back.exit_code) == (0, 0), back.output
    coco = json.loads((tmp_path / "again" / "annotations.json").read_text())
    assert_same(objects_in(coco), objects_of(project))


def test_label_studio_becomes_yolo(run, project, tmp_path):
    project["images"] = [project["images"][0]]
    project["images"][0]["objects"] = project["images"][0]["objects"][:1]
    save(tmp_path, write("label-studio", project))
    done = run("convert tasks.json --images images --to yolo --out yolo")
    assert (done.exit_code, done.stdout) == (0, "wrote yolo: 1 images\n"), done.output
    (line,) = (tmp_path / "yolo" / "labels" / "my photo.txt").read_text().splitlines()
    assert line.startswith("0 ")


def damaged(project: dict[str, Any], change: Callable[[dict[str, Any]], object]) -> bytes:
    """Return tasks whose first result was changed."""
    tasks = json.loads(write("label-studio", project)["tasks.json"])
    change(tasks[0]["annotations"][0]["result"][0])
    return json.dumps(tasks).encode()


def test_regions_that_cannot_be_read_are_listed_and_the_others_written(run, project, tmp_path):
    content = damaged(project, lambda result: result["value"].update(rle=[0, 0]))
    (tmp_path / "tasks.json").write_bytes(content)
    done = run("convert tasks.json --images images --to coco --out coco")
    assert done.exit_code == 1
    assert done.stdout == "wrote coco: 4 images, 1 objects left out\n"
    assert done.stderr == "failed: tasks.json, task 0, object object1: its mask ends early\n"
    coco = json.loads((tmp_path / "coco" / "annotations.json").read_text())
    assert len(coco["annotations"]) == 29


COCO_FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "size": (
        {"segmentation": {"size": [9, 9], "counts": [81]}},
        "expected a mask of 60 x 40 pixels, got the size [9, 9], height first",
    ),
    "sum": (
        {"segmentation": {"size": [40, 60], "counts": [5]}},
        "expected run lengths of 60 x 40 pixels in counts",
    ),
    "negative": (
        {"segmentation": {"size": [40, 60], "counts": [2401, -1]}},
        "expected run lengths of 60 x 40 pixels in counts",
    ),
    "text": (
        {"segmentation": {"size": [40, 60], "counts": "\u00e9"}},
        "expected run lengths in COCO's compressed form in counts",
    ),
    "polygon": (
        {"segmentation": [[1, 2, 3, 4]]},
        "expected a polygon of at least three pairs of numbers",
    ),
    "far": (
        {"segmentation": [[0, 0, 1e300, 0, 0, 1e300]]},
        "a polygon has points far outside of the image",
    ),
    "outside": ({"bbox": [70, 50, 5, 5]}, "it has no mask, and no box in the image"),
}


@pytest.mark.parametrize(("fault", "reason"), COCO_FAULTS.values(), ids=COCO_FAULTS)
def test_damaged_masks_of_coco_are_left_out_for_label_studio(run, tmp_path, fault, reason):
    (tmp_path / "images").mkdir()
    Image.new("L", (60, 40)).save(tmp_path / "images" / "a.png")
    sound = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [10, 10, 20, 10]}
    document = {
        "images": [{"id": 1, "file_name": "a.png", "width": 60, "height": 40}],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [sound, {**sound, "id": 2, **fault}],
    }
    (tmp_path / "coco.json").write_text(json.dumps(document))
    done = run("convert coco.json --images images --to label-studio --out out")
    assert done.exit_code == 1
    assert done.stderr.splitlines() == [
        f"failed: a.png, object 2: {reason}",
        "changed: a.png, object 1: it has only a box, which is written as its mask",
    ]
    (task,) = json.loads((tmp_path / "out" / "tasks.json").read_text())
    (result,) = task["annotations"][0]["result"]
    assert result["value"]["brushlabels"] == ["cat"]


CHOICE = {
    "id": "c1",
    "type": "choices",
    "from_name": "weather",
    "to_name": "image",
    "value": {"choices": ["rain"]},
}
ELLIPSE = {
    "id": "e1",
    "type": "ellipse",
    "from_name": "shape",
    "to_name": "image",
    "value": {"x": 50, "y": 50, "radiusX": 9, "radiusY": 9},
}


def convert_results(run, tmp_path: Path, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the COCO document of a task with these results, for `images/a.png`."""
    (tmp_path / "images").mkdir()
    Image.new("L", (60, 40)).save(tmp_path / "images" / "a.png")
    task = {"data": {"image": "/data/upload/a.png"}, "annotations": [{"result": results}]}
    (tmp_path / "tasks.json").write_text(json.dumps([task]))
    run("convert tasks.json --images images --to coco --out coco")
    document: dict[str, Any] = json.loads((tmp_path / "coco" / "annotations.json").read_text())
    return document


@pytest.mark.parametrize("results", [[], [CHOICE]], ids=["none", "choices"])
def test_tasks_whose_results_are_no_regions_are_images_without_objects(run, tmp_path, results):
    coco = convert_results(run, tmp_path, results)
    (image,) = coco["images"]
    assert (image["file_name"], image["width"], image["height"]) == ("a.png", 60, 40)
    assert coco["annotations"] == []


@pytest.mark.parametrize(
    "result", [ELLIPSE, {**CHOICE, "type": None}, 5], ids=["ellipse", "type", "number"]
)
def test_tasks_with_a_result_that_is_not_read_do_not_look_empty(run, tmp_path, result):
    assert convert_results(run, tmp_path, [CHOICE, result])["images"] == []


def test_coco_is_no_source_for_coco(run, project, tmp_path):
    save(tmp_path, write("coco", project))
    done = run("convert annotations/instances.json --images images --to coco --out out")
    assert done.exit_code == 1
    assert "it is no list of Label Studio's tasks" in done.stderr
    assert not (tmp_path / "out").exists()
