"""Exported files are read by the usual libraries, unchanged, with the same masks."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image
from pycocotools.coco import COCO
from supervision import DetectionDataset

from tests.unit.page.formats import (
    CLASSES,
    FormatError,
    iou,
    masks_of,
    project_of,
    read,
    save,
    sizes_of,
    write,
)

SINGLE_ISLANDS = ("disc", "hole", "single", "line", "whole")
CLASS_NAMES = [one["name"] for one in CLASSES]


@pytest.fixture(scope="module")
def project() -> dict:
    return project_of()


def folders(project: dict) -> list[tuple[Path, list[dict]]]:
    """Return the images by folder: supervision reads YOLO, Pascal VOC and LabelMe one folder at
    a time.
    """
    found: dict[Path, list[dict]] = {}
    for image in project["images"]:
        found.setdefault(Path(image["name"]).parent, []).append(image)
    return list(found.items())


def detections(dataset: DetectionDataset) -> dict:
    return {Path(path).name: found for path, found in dataset.annotations.items()}


def assert_same(found, image: dict, classes: list[str]) -> None:
    """Assert that supervision's detections are an image's objects, exactly."""
    expected = masks_of(image)
    assert len(found) == len(expected)
    if expected:
        assert np.array_equal(found.mask, expected)
        names = {one["id"]: one["name"] for one in CLASSES}
        assert [classes[index] for index in found.class_id] == [
            names[one["categoryId"]] for one in image["objects"]
        ]


@pytest.mark.parametrize("kind", ["coco", "coco-polygons"])
def test_coco_is_read_exactly_by_pycocotools(kind, project, tmp_path):
    save(tmp_path, write(kind, project, tolerance=0), project, "images")
    coco = COCO(tmp_path / "annotations" / "instances.json")
    assert [one["name"] for one in coco.loadCats(coco.getCatIds())] == CLASS_NAMES
    for image_id, image in zip(coco.getImgIds(), project["images"], strict=True):
        annotations = coco.loadAnns(coco.getAnnIds(image_id))
        for found, expected, mask in zip(
            annotations, image["objects"], masks_of(image), strict=True
        ):
            assert np.array_equal(coco.annToMask(found), mask)
            assert found["area"] == mask.sum()
            y, x = np.nonzero(mask)
            assert found["bbox"] == [x.min(), y.min(), np.ptp(x) + 1, np.ptp(y) + 1]
            assert (found["category_id"], found["name"]) == (
                expected["categoryId"],
                expected["name"],
            )
            assert (found["score"], found["iscrowd"]) == (0.5, 0)


@pytest.mark.parametrize(("tolerance", "least"), [(0, 1), (0.5, 0.98)])
def test_yolo_is_read_by_supervision(tolerance, least, project, tmp_path):
    save(tmp_path, write("yolo", project, tolerance=tolerance), project, "images")
    for folder, images in folders(project):
        dataset = DetectionDataset.from_yolo(
            str(tmp_path / "images" / folder),
            str(tmp_path / "labels" / folder),
            str(tmp_path / "data.yaml"),
        )
        assert dataset.classes == CLASS_NAMES
        for image in images:
            found = detections(dataset)[Path(image["name"]).name]
            assert len(found) == len(image["objects"])
            for one, mask, expected in zip(
                image["objects"], found.mask if len(found) else [], masks_of(image), strict=True
            ):
                if one["name"].split(" ")[0] in SINGLE_ISLANDS:
                    assert iou(mask, expected) >= least, one["name"]
                # The line that joins islands is painted too.
                assert tolerance or not (expected & ~mask).any()
            assert np.array_equal(
                found.class_id + 1, [one["categoryId"] for one in image["objects"]]
            )


def test_yolo_coordinates_survive_truncation_as_by_ultralytics(project):
    files = write("yolo", project, tolerance=0)
    for image in project["images"]:
        size = np.array([image["width"], image["height"]], np.float32)
        for line in (
            files[f"labels/{Path(image['name']).with_suffix('.txt')}"].decode().splitlines()
        ):
            points = np.array(line.split()[1:], np.float32).reshape(-1, 2)
            assert points.min() >= 0
            assert points.max() <= 1
            assert np.array_equal((points * size).astype(np.int32), np.round(points * size))


def test_yolo_images_without_objects_have_empty_labels(project):
    assert write("yolo", project)["labels/empty.txt"] == b""


def test_yolo_class_names_are_yaml():
    names = ["a: b", "- c", "#d", "'e'", '"f"', "yes", "1", " g ", "h\\n\n\x7f\u2028", "null", ""]
    classes = [
        {"id": index + 1, "name": name, "color": "#000000"} for index, name in enumerate(names)
    ]
    data = yaml.safe_load(write("yolo", {"classes": classes, "images": []})["data.yaml"])
    assert data == {
        "train": "images",
        "val": "images",
        "nc": len(names),
        "names": dict(enumerate(names)),
    }


def test_pascal_voc_is_read_exactly_by_supervision(project, tmp_path):
    save(tmp_path, write("voc", project, tolerance=0), project, "JPEGImages")
    for folder, images in folders(project):
        paths = (str(tmp_path / name / folder) for name in ("JPEGImages", "Annotations"))
        dataset = DetectionDataset.from_pascal_voc(*paths)
        for image in images:
            found = detections(dataset)[Path(image["name"]).name]
            assert_same(found, image, dataset.classes)
            for box, mask in zip(found.xyxy, masks_of(image), strict=True):
                y, x = np.nonzero(mask)
                assert box.tolist() == [x.min(), y.min(), x.max() + 1, y.max() + 1]


def test_labelme_polygons_are_read_exactly_by_supervision(project, tmp_path):
    save(tmp_path, write("labelme", project, tolerance=0), project, "")
    for folder, images in folders(project):
        dataset = DetectionDataset.from_labelme(str(tmp_path / folder), str(tmp_path / folder))
        for image in images:
            assert_same(detections(dataset)[Path(image["name"]).name], image, dataset.classes)


def painted(image: dict, values: list[int]) -> np.ndarray:
    """Return a label map with later objects over earlier ones."""
    found = np.zeros((image["height"], image["width"]), int)
    for mask, value in zip(masks_of(image), values, strict=True):
        found[mask] = value
    return found


@pytest.mark.parametrize("first_id", [1, 300], ids=["indexed", "16-bit"])
def test_label_maps_are_read_by_pillow_and_again_by_the_page(first_id, project):
    shifted = json.loads(json.dumps(project))
    for one in shifted["classes"]:
        one["id"] += first_id - 1
    for image in shifted["images"]:
        image["objects"].reverse()  # else, the whole image would be over the others
        for one in image["objects"]:
            one["categoryId"] += first_id - 1
    files = write("label-maps", shifted)
    rewritten = {"classes.json": files["classes.json"]}
    assert json.loads(files["classes.json"]) == shifted["classes"]
    for image in shifted["images"]:
        name = Path(image["name"]).with_suffix(".png")
        with Image.open(io.BytesIO(files[f"classes/{name}"])) as picture:
            assert np.array_equal(
                np.array(picture), painted(image, [one["categoryId"] for one in image["objects"]])
            )
            if first_id == 1:
                assert picture.mode == "P"
                assert picture.getpalette()[:9] == [0, 0, 0, 255, 0, 0, 0, 255, 127]
        with Image.open(io.BytesIO(files[f"instances/{name}"])) as picture:
            assert np.array_equal(
                np.array(picture), painted(image, [i + 1 for i in range(len(image["objects"]))])
            )
    # Pillow writes fewer bits a pixel, or other filters.
    for path in [path for path in files if path.endswith(".png")]:
        with Image.open(io.BytesIO(files[path])) as picture:
            picture.save(content := io.BytesIO(), "PNG")
        rewritten[path] = content.getvalue()
    for given in (files, rewritten):
        again, warnings = read(given, sizes_of(project))
        assert (again["classes"], warnings) == (shifted["classes"], [])
        for image, found in zip(shifted["images"], again["images"], strict=True):
            numbers = painted(image, [i + 1 for i in range(len(image["objects"]))])
            visible = np.unique(numbers[numbers > 0])
            categories = [image["objects"][number - 1]["categoryId"] for number in visible]
            assert [one["categoryId"] for one in found["objects"]] == categories
            assert np.array_equal(masks_of(found), [numbers == number for number in visible])


@pytest.mark.parametrize("kind", ["yolo", "voc", "labelme", "label-maps"])
def test_images_with_the_same_stem_are_refused(kind, project):
    images = [{**project["images"][3], "name": name} for name in ("a/Cat.jpg", "a/cat.png")]
    with pytest.raises(FormatError, match=r"a/Cat\.jpg and a/cat\.png need different names"):
        write(kind, {"classes": CLASSES, "images": images})


@pytest.mark.parametrize("kind", ["coco", "yolo", "voc", "labelme", "label-maps"])
def test_paths_stay_in_their_folder(kind, project):
    image = {**project["images"][3], "name": "..\\..//C:/../../etc/./passwd.png"}
    files = write(kind, {"classes": CLASSES, "images": [image]})
    assert not any(part in ("..", "", ".") for path in files for part in path.split("/"))
    assert any("etc/passwd" in path for path in files) or b'"etc/passwd.png"' in b"".join(
        files.values()
    )


def test_a_damaged_mask_is_named():
    project = project_of()
    project["images"][0]["objects"][0]["rle"]["counts"] = "00"
    with pytest.raises(
        FormatError,
        match=r"my photo\.jpg: the mask of disc 0 is damaged: the run lengths add up to 0",
    ):
        write("coco", project)


def test_empty_masks_are_left_out(project):
    image = {**project["images"][3]}
    image["objects"] = [
        {"categoryId": 1, "name": "a", "score": None, "rle": {"size": [10, 20], "counts": "X6"}}
    ]
    (content,) = write("coco", {"classes": CLASSES, "images": [image]}).values()
    assert json.loads(content)["annotations"] == []
