"""`mobile-sam convert`: annotations read back by the library that has the formats."""

import json
import sys

import numpy as np
import pytest
import supervision
from pycocotools.coco import COCO

from mobile_sam_client._commands.convert import REQUIREMENT
from tests.unit.client.mobile_sam_client.commands.fake_sam import picture
from tests.unit.client.mobile_sam_client.fake_service import rotated_90
from tests.unit.client.mobile_sam_client.test_results import everything

CONVERT = ("convert", "found/annotations.json", "--images", "photos", "--out", "converted", "--to")


@pytest.fixture
def masks(tmp_path) -> list[np.ndarray]:
    """Annotate `photos/a.png` with a shape, one with a hole, and one of two islands; `photos/b.jpg` with nothing.

    Returns:
        The masks, (H, W) bool.
    """
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(picture(1, (80, 60)))
    (tmp_path / "photos" / "b.jpg").write_bytes(picture(2, (40, 30), "JPEG"))
    masks = [np.zeros((60, 80), bool) for _ in range(3)]
    y, x = np.ogrid[:60, :80]
    masks[0][(x - 20) ** 2 + (y - 20) ** 2 < 150] = True
    masks[1][5:40, 40:75] = True
    masks[1][15:30, 50:65] = False
    masks[2][45:55, 5:20] = True
    masks[2][45:55, 30:50] = True
    document = {
        "images": [
            {"id": 1, "file_name": "a.png", "width": 80, "height": 60},
            {"id": 2, "file_name": "b.jpg", "width": 40, "height": 30},
        ],
        "categories": [{"id": 1, "name": "object"}],
        "annotations": everything(*masks).to_coco(),
    }
    (tmp_path / "found").mkdir()
    (tmp_path / "found" / "annotations.json").write_text(json.dumps(document))
    return masks


@pytest.mark.parametrize("form", ["yolo", "voc", "labelme"])
def test_masks_survive_a_round_trip(run, masks, tmp_path, form):
    done = run(*CONVERT, form)
    assert (done.exit_code, done.stdout) == (0, "wrote converted: 2 images\n")
    photos, out = str(tmp_path / "photos"), tmp_path / "converted"
    data = supervision.DetectionDataset
    if form == "yolo":
        dataset = data.from_yolo(photos, str(out / "labels"), str(out / "data.yaml"), force_masks=True)
    elif form == "voc":
        dataset = data.from_pascal_voc(photos, str(out), force_masks=True)
    else:
        dataset = data.from_labelme(photos, str(out), force_masks=True)
    assert dataset.classes == ["object"]
    found = {path.rpartition("/")[2]: detections for path, detections in dataset.annotations.items()}
    assert found.keys() == {"a.png", "b.jpg"}
    assert len(found["b.jpg"]) == 0
    assert len(found["a.png"]) == (3 if form == "labelme" else 4)  # one object for each island
    merged = [np.logical_or.reduce(found["a.png"].mask[[index]]) for index in range(2)]
    merged.append(np.logical_or.reduce(found["a.png"].mask[2:]))
    for before, after in zip(masks, merged, strict=True):
        assert (before & after).sum() / (before | after).sum() > 0.9


def test_annotations_of_batch_are_converted(run, sam, photo, tmp_path):
    assert run("batch", ".", "--out", "found", "--no-overlays").exit_code == 0
    assert run(*CONVERT, "yolo", "--images", ".").exit_code == 0
    labels = (tmp_path / "converted" / "labels" / "photo.txt").read_text().splitlines()
    areas = [found["area"] for found in COCO(tmp_path / "found" / "annotations.json").anns.values()]
    assert len(labels) == len(areas) == 2


def test_rotated_photos_keep_the_displayed_size(run, sam, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "photo.jpg").write_bytes(picture(1, (60, 40), "JPEG", exif=rotated_90()))
    assert run("batch", "photos", "--out", "found", "--no-overlays").exit_code == 0
    assert run(*CONVERT, "labelme").exit_code == 0
    document = json.loads((tmp_path / "converted" / "photo.json").read_text())
    assert (document["imageWidth"], document["imageHeight"]) == (40, 60)


@pytest.mark.usefixtures("masks")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "cannot convert found/annotations.json: 'categories' is missing"),
        ("no", "cannot convert found/annotations.json: Expecting value"),
        (None, "found/annotations.json: No such file or directory"),
        (
            '{"annotations": [], "categories": [], "images": [{"id": 1, "file_name": "../", "width": 9, "height": 9}]}',
            "outside the images directory",
        ),
    ],
    ids=["members", "JSON", "absent", "outside"],
)
def test_wrong_annotations_are_reported_in_one_line(run, tmp_path, content, message):
    file = tmp_path / "found" / "annotations.json"
    file.write_text(content) if content else file.unlink()
    done = run(*CONVERT, "yolo")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert message in done.stderr


@pytest.mark.usefixtures("masks")
def test_files_in_the_folder_are_kept_without_force(run, tmp_path):
    (tmp_path / "converted").mkdir()
    (tmp_path / "converted" / "mine").touch()
    done = run(*CONVERT, "yolo")
    assert (done.exit_code, done.stderr) == (1, "error: converted is not empty; write into it with --force\n")
    assert len(list((tmp_path / "converted").iterdir())) == 1


@pytest.mark.usefixtures("masks")
def test_missing_library_is_named(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "supervision", None)
    done = run(*CONVERT, "yolo")
    assert (done.exit_code, done.stderr) == (1, f"error: convert needs another package: pip install '{REQUIREMENT}'\n")
