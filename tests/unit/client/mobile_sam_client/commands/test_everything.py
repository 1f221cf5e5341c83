"""`mobile-sam everything`."""

from __future__ import annotations

import json

import pytest
from PIL import Image
from pycocotools.coco import COCO

from tests.unit.client.mobile_sam_client.commands.fake_sam import SIZE, SQUARES


def test_records_have_segment_anythings_field_names(run, sam, photo, tmp_path):
    done = run("everything", "photo.png")
    assert done.exit_code == 0
    first, _ = json.loads((tmp_path / "records.json").read_text())
    assert first.pop("segmentation")["size"] == [SIZE[1], SIZE[0]]
    assert first == {
        "area": 400,
        "bbox": [0, 0, 20, 20],
        "predicted_iou": 0.9,
        "point_coords": [[1.5, 0.5]],
        "stability_score": 0.8,
        "crop_box": [0, 0, *SIZE],
    }
    assert done.stdout.splitlines() == ["photo.png: 60 x 40 pixels, 2 objects", "wrote records.json", "weights: none"]


def test_no_progress_bar_without_terminal(run, sam, photo):
    assert run("everything", "photo.png").stderr == "note: A note.\n"


def test_coco_format(run, sam, photo, tmp_path):
    assert run("everything", "photo.png", "--format", "coco", "--out", "found.json").exit_code == 0
    loaded = COCO(tmp_path / "found.json")
    assert [image["file_name"] for image in loaded.loadImgs(loaded.getImgIds())] == ["photo.png"]
    assert [found["area"] for found in loaded.loadAnns(loaded.getAnnIds())] == [400, 100]


@pytest.mark.parametrize(("arguments", "sent"), [((), None), (("--points-per-side", "8"), 8)], ids=["none", "8"])
def test_grid_is_the_services_default_unless_given(run, sam, photo, arguments, sent):
    run("everything", "photo.png", *arguments)
    assert sam.requests[0][1].get("points_per_side") == sent


def test_picture_shows_each_object_in_its_own_colour(run, sam, photo, tmp_path):
    done = run("everything", "photo.png", "--picture", "all.png")
    assert "wrote records.json and all.png" in done.stdout
    with Image.open(tmp_path / "all.png") as drawn, Image.open(tmp_path / "photo.png") as before:
        edges = {drawn.getpixel((x0, y0)) for x0, y0, _, _ in SQUARES}
        assert len(edges) == 2
        assert drawn.getpixel((50, 35)) == before.getpixel((50, 35))
