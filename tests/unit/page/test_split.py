"""The split into images for training and validation: which ones, where the formats have it, and
reading it again.
"""

import json
from pathlib import Path

import pytest
import yaml
from pycocotools.coco import COCO
from supervision import DetectionDataset

from tests.unit.page.formats import (
    FormatError,
    masks_of,
    project_of,
    read,
    run,
    save,
    sizes_of,
    write,
)

FRAMES = [f"frames/{number:03}.jpg" for number in range(101)]


def validation(names: list[str], share: float, seed: int) -> set[str]:
    """Return the names of the images for validation; all others are for training."""
    images = run(
        "split", images=[{"name": name} for name in names], split={"share": share, "seed": seed}
    )
    assert {image["subset"] for image in images} == {"train", "val"}
    return {image["name"] for image in images if image["subset"] == "val"}


@pytest.fixture(scope="module")
def project() -> dict:
    """A project with a split; among its images, two of one file name, and folders called train
    and val.
    """
    project = project_of()
    for image, name, subset in zip(
        project["images"],
        ["photo.jpg", "train/photo.jpg", "val/deep/空.v2.webp", "empty.png"],
        ["train", "train", "val", "val"],
        strict=True,
    ):
        image.update(name=name, subset=subset)
        image["objects"] = [
            one for one in image["objects"] if one["name"].startswith(("disc", "hole", "whole"))
        ]
    # Of one size, so that the size does not tell which image a file belongs to.
    project["images"][1].update(width=160, height=120, objects=project["images"][0]["objects"][:1])
    return project


@pytest.mark.parametrize(("share", "count"), [(0.2, 20), (0.001, 1), (0.999, 100)])
def test_split_has_the_share_whatever_the_order_and_follows_the_seed(share, count):
    found = validation(FRAMES, share, 7)
    assert len(found) == count
    assert found == validation(FRAMES[::-1], share, 7)
    assert found != validation(FRAMES, share, 8)


@pytest.mark.slow
def test_added_image_moves_at_most_one_other():
    moved = []
    found = validation(FRAMES[:2], 0.3, 1)
    for count in range(3, 40):
        now = validation(FRAMES[:count], 0.3, 1)
        moved.append(len((found ^ now) - {FRAMES[count - 1]}))
        found = now
    assert max(moved) == 1
    assert sum(moved) < len(moved)


def test_no_share_is_no_split_and_one_image_cannot_be_split():
    assert run("split", images=[{"name": "a.jpg"}], split={"share": 0, "seed": 1}) == [
        {"name": "a.jpg"}
    ]
    with pytest.raises(FormatError, match="needs at least two images"):
        validation(["a.jpg"], 0.2, 1)


@pytest.mark.parametrize("kind", ["coco", "coco-polygons", "yolo", "labelme", "label-maps"])
def test_split_is_read_again_with_the_same_ids_names_and_masks(kind, project):
    given = json.loads(json.dumps(project))
    for image in given["images"] if kind == "label-maps" else []:
        image["objects"] = image["objects"][:1]  # no overlap
    again, warnings = read(write(kind, given, tolerance=0), sizes_of(given))
    assert warnings == []
    assert again["classes"] == given["classes"]
    found = {image["name"]: image for image in again["images"]}
    for image in given["images"]:
        objects = found[image["name"]]["objects"]
        assert [one["categoryId"] for one in objects] == [
            one["categoryId"] for one in image["objects"]
        ]
        for mask, expected in zip(masks_of(found[image["name"]]), masks_of(image), strict=True):
            assert (mask == expected).all()
        if kind in ("coco", "coco-polygons", "labelme"):
            assert [one["name"] for one in objects] == [one["name"] for one in image["objects"]]


def test_coco_has_a_file_of_each_subset(project, tmp_path):
    save(tmp_path, write("coco", project), project, "images")
    for subset, names in (
        ("train", ["photo.jpg", "train/photo.jpg"]),
        ("val", ["val/deep/空.v2.webp", "empty.png"]),
    ):
        coco = COCO(tmp_path / "annotations" / f"{subset}.json")
        assert [image["file_name"] for image in coco.loadImgs(coco.getImgIds())] == names
        assert len(coco.getCatIds()) == len(project["classes"])


def test_yolo_has_folders_of_the_subsets_that_data_yaml_names(project, tmp_path):
    files = write("yolo", project)
    data = yaml.safe_load(files["data.yaml"])
    assert (data["train"], data["val"]) == ("images/train", "images/val")
    save(tmp_path, files, {"images": project["images"][:1]}, "images/train")
    dataset = DetectionDataset.from_yolo(
        str(tmp_path / data["train"]),
        str(tmp_path / "labels" / "train"),
        str(tmp_path / "data.yaml"),
    )
    assert [Path(path).name for path in dataset.image_paths] == ["photo.jpg"]
    assert len(next(iter(dataset.annotations.values()))) == len(project["images"][0]["objects"])
    assert {path for path in files if path.startswith("labels/")} == {
        "labels/train/photo.txt",
        "labels/train/train/photo.txt",
        "labels/val/val/deep/空.v2.txt",
        "labels/val/empty.txt",
    }


@pytest.mark.parametrize(("kind", "folder"), [("voc", "Main"), ("label-maps", "Segmentation")])
def test_pascal_voc_and_label_maps_have_lists(kind, folder, project):
    files = write(kind, project)
    assert files[f"ImageSets/{folder}/train.txt"].decode() == "photo\ntrain/photo\n"
    assert files[f"ImageSets/{folder}/val.txt"].decode() == "val/deep/空.v2\nempty\n"
    assert not any("ImageSets" in path for path in write(kind, project_of()))


def test_labelme_has_the_images_beside_their_files(project, tmp_path):
    files = write("labelme", project)
    assert {"train/photo.json", "train/train/photo.json", "val/empty.json"} <= set(files)
    save(tmp_path, files, {"images": project["images"][3:]}, "val")
    dataset = DetectionDataset.from_labelme(str(tmp_path / "val"), str(tmp_path / "val"))
    assert [Path(path).name for path in dataset.image_paths] == ["empty.png"]


def test_data_set_in_folders_called_train_and_val_needs_no_split():
    project = project_of()
    for image, name in zip(
        project["images"], ["train/a.jpg", "val/a.jpg", "train/b.jpg", "val/c.jpg"], strict=True
    ):
        image["name"] = name
    again, warnings = read(write("yolo", project), sizes_of(project))
    assert warnings == []
    assert [image["name"] for image in again["images"]] == [
        image["name"] for image in project["images"]
    ]
