"""`mobile-sam follow`: objects of a saved project through a folder of images."""

import io
import json
import zipfile
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco

from mobile_sam_client._commands.follow import natural_key
from tests.unit.client.mobile_sam_client.fake_service import file_of, rle

SIZE_HW = (120, 160)


def frame(x: int | None) -> bytes:
    """Return an image file with an orange square at `x`; None: without it."""
    pixels = np.random.default_rng(0).integers(100, 150, (*SIZE_HW, 3), dtype=np.uint8)
    if x is not None:
        pixels[40:80, x : x + 40] = (230, 120, 20)
    return file_of(Image.fromarray(pixels))


def square(x: int) -> np.ndarray:
    mask = np.zeros(SIZE_HW, bool)
    mask[40:80, x : x + 40] = True
    return mask


def saved(path, changes: dict[str, Any] | None = None, **record: Any) -> None:
    """Write a project as the page saves it: the objects are on the second of three images."""
    shown = {**rle(square(20)), "score": 0.9, "area": 1600, "box": [20, 40, 60, 80], "point": None}
    now = {"list": [{"id": 7, "name": "the square", "classId": 4}], "activeId": 7}
    work = {"shown": [[7, {**shown, **record}]], "objects": {"now": now, "past": [], "future": []}}
    images = []
    for number in (1, 2, 10):
        image: dict[str, Any] = {"name": f"{number}.png", "path": f"images/{number}/{number}.png"}
        size: dict[str, Any] = {"height": SIZE_HW[0], "width": SIZE_HW[1], "original": None}
        images.append({**image, **size, "work": work if number == 2 else None})
    classes = [{"id": 4, "name": "box", "colour": "#ff0000"}]
    document = {"version": 1, "classes": classes, "images": images, **(changes or {})}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("project.json", json.dumps(document))
        for image in images:
            archive.writestr(image["path"], frame(20))


@pytest.fixture
def frames(tmp_path):
    """Folder of images on which the square moves, and is gone from the last two."""
    folder = tmp_path / "frames"
    folder.mkdir()
    for number, x in {1: 16, 2: 20, 3: 26, 10: 32, 11: None, 12: None}.items():
        (folder / f"{number}.png").write_bytes(frame(x))
    return folder


def test_natural_order_sorts_numbers_by_value():
    names = ["10.png", "2.png", "b/1.png", "a10b2.png", "a9b10.png", "1.png"]
    expected = ["1.png", "2.png", "10.png", "a9b10.png", "a10b2.png", "b/1.png"]
    assert sorted(names, key=natural_key) == expected


@pytest.mark.usefixtures("sam")
def test_follow_writes_the_masks_after_the_last_labelled_image(run, frames, tmp_path):
    saved(tmp_path / "project.zip")
    ended = run("follow", frames, "--from", "project.zip", "--out", "found")
    assert ended.exit_code == 0, ended.output
    document = json.loads((tmp_path / "found" / "annotations.json").read_text())
    assert [entry["file_name"] for entry in document["images"]] == [
        "3.png",
        "10.png",
        "11.png",
        "12.png",
    ]
    assert document["categories"] == [{"id": 4, "name": "box", "supercategory": ""}]
    assert [entry["image_id"] for entry in document["annotations"]] == [1, 2]
    for entry, x in zip(document["annotations"], (26, 32), strict=True):
        assert (entry["category_id"], entry["track_id"]) == (4, 1)
        mask = coco.decode(entry["segmentation"]).astype(bool)
        assert (mask & square(x)).sum() > 1500
        assert mask.sum() < 2500


@pytest.mark.usefixtures("sam")
def test_object_that_is_gone_is_listed_for_review(run, frames, tmp_path):
    saved(tmp_path / "project.zip")
    ended = run("follow", frames, "--from", "project.zip", "--out", "found")
    review = json.loads((tmp_path / "found" / "review.json").read_text())
    assert [entry["file_name"] for entry in review["images"]] == ["11.png", "12.png"]
    assert ["other colours" in entry["review"] for entry in review["annotations"]] == [True, True]
    assert "review from 11.png: object 1 (the square): " in ended.output
    assert "12.png" not in ended.output


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (({"version": 2}, {}), "expected a project of version 1, got 2"),
        (({"images": []}, {}), "no image of the project has objects"),
        (({"images": 5}, {}), "the project is damaged"),
        (({}, {"size": [9, 9]}), "expected a mask of 120 x 160 pixels, got [9, 9]"),
        (({}, {"area": 1599}), "a mask has 1600 pixels, not 1599"),
        (({"classes": []}, {}), "an object has the unknown class 4"),
    ],
    ids=["version", "no objects", "images", "size of a mask", "area of a mask", "class"],
)
@pytest.mark.usefixtures("sam")
def test_damaged_project_is_one_error(run, frames, tmp_path, case, message):
    changes, record = case
    saved(tmp_path / "project.zip", changes, **record)
    ended = run("follow", frames, "--from", "project.zip", "--out", "found")
    assert ended.exit_code == 1
    assert message in ended.output
    assert ended.output.count("\n") == 1
    assert not (tmp_path / "found").exists()


def test_file_that_is_no_project_is_one_error(run, sam, frames, tmp_path):
    (tmp_path / "project.zip").write_bytes(b"no ZIP file")
    ended = run("follow", frames, "--from", "project.zip", "--out", "found")
    assert ended.exit_code == 1
    assert "expected a project saved by the page" in ended.output
    assert not sam.requests


def test_folder_without_the_labelled_image_is_an_error(run, sam, frames, tmp_path):
    saved(tmp_path / "project.zip")
    (frames / "2.png").unlink()
    ended = run("follow", frames, "--from", "project.zip", "--out", "found")
    assert ended.exit_code == 1
    assert "2.png, the last labelled image of the project: no such image" in ended.output
    assert not sam.requests


@pytest.mark.usefixtures("sam")
def test_image_of_another_size_is_one_error(run, frames, tmp_path):
    saved(tmp_path / "project.zip")
    picture = io.BytesIO()
    Image.new("RGB", (50, 50)).save(picture, "PNG")
    (frames / "3.png").write_bytes(picture.getvalue())
    ended = run("follow", frames, "--from", "project.zip", "--out", "found")
    assert ended.exit_code == 1
    assert "3.png: expected an image of 160 x 120 pixels, got 50 x 50" in ended.output
    assert not (tmp_path / "found").exists()


@pytest.mark.usefixtures("sam")
def test_existing_results_are_kept_without_force(run, frames, tmp_path):
    saved(tmp_path / "project.zip")
    (tmp_path / "found").mkdir()
    (tmp_path / "found" / "review.json").write_text("mine")
    command = ("follow", frames, "--from", "project.zip", "--out", "found")
    assert run(*command).exit_code == 1
    assert (tmp_path / "found" / "review.json").read_text() == "mine"
    assert run(*command, "--force").exit_code == 0
    assert json.loads((tmp_path / "found" / "review.json").read_text())["images"]
