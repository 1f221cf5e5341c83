"""`mobile-sam everything`."""

from __future__ import annotations

import json

import pytest
from PIL import Image
from pycocotools.coco import COCO

from tests.unit.client.mobile_sam_client.commands.fake_sam import SIZE, SQUARES


def test_records_are_written_under_segment_anythings_names(run, sam, photo, tmp_path):
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


def test_no_bar_where_there_is_no_terminal(run, sam, photo):
    assert run("everything", "photo.png").stderr == "note: A note.\n"


def test_a_coco_file_of_one_image(run, sam, photo, tmp_path):
    assert run("everything", "photo.png", "--format", "coco", "--out", "found.json").exit_code == 0
    loaded = COCO(tmp_path / "found.json")
    assert [image["file_name"] for image in loaded.loadImgs(loaded.getImgIds())] == ["photo.png"]
    assert [one["area"] for one in loaded.loadAnns(loaded.getAnnIds())] == [400, 100]


@pytest.mark.parametrize(("arguments", "sent"), [((), None), (("--points-per-side", "8"), 8)], ids=["none", "8"])
def test_the_grid_is_the_services_own_unless_told(run, sam, photo, arguments, sent):
    run("everything", "photo.png", *arguments)
    assert sam.asked[0][1].get("points_per_side") == sent


def test_a_picture_shows_each_object_in_a_colour(run, sam, photo, tmp_path):
    done = run("everything", "photo.png", "--picture", "all.png")
    assert "wrote records.json and all.png" in done.stdout
    with Image.open(tmp_path / "all.png") as drawn, Image.open(tmp_path / "photo.png") as before:
        edges = {drawn.getpixel((x0, y0)) for x0, y0, _, _ in SQUARES}
        assert len(edges) == 2
        assert drawn.getpixel((50, 35)) == before.getpixel((50, 35))
