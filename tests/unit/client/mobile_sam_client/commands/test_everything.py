"""`mobile-sam everything`, and the options of the mask generator."""

import json

import pytest
from PIL import Image
from pycocotools.coco import COCO

from tests.unit.client.mobile_sam_client.commands.fake_sam import SIZE, SQUARES, picture
from tests.unit.client.mobile_sam_client.commands.test_segment import rejection
from utils.api.requests import EverythingRequest, ImageFields

GENERATOR_FIELDS = EverythingRequest.model_fields.keys() - ImageFields.model_fields.keys() - {"progress"}


def test_records_are_written_and_summarized(run, sam, photo, tmp_path):
    done = run("everything", "photo.png")
    assert done.exit_code == 0
    first, _ = json.loads((tmp_path / "photo_records.json").read_text())
    assert (first["bbox"], first["crop_box"], first["predicted_iou"]) == ([0, 0, 20, 20], [0, 0, *SIZE], 0.9)
    assert done.stdout == "photo.png: 60 x 40 pixels, 2 objects\nwrote photo_records.json\nweights: none\n"
    assert sam.requests[0][1].keys() == {"input_image", "progress"}
    assert done.stderr == "note: A note.\n"  # no progress bar without a terminal


@pytest.mark.parametrize("command", ["everything photo.png", "batch . --out found"])
def test_every_parameter_of_the_generator_is_an_option(run, sam, photo, command):
    options = {f"--{name.replace('_', '-')}": name for name in GENERATOR_FIELDS - {"min_mask_region_area"}}
    options["--min-area"] = "min_mask_region_area"
    done = run(*command.split(), *(word for option in options for word in (option, "1")))
    assert done.exit_code == 0, done.output
    assert {name: sam.requests[0][1][name] for name in options.values()} == dict.fromkeys(options.values(), 1)


def test_rejected_parameter_is_named_by_its_option(run, sam, photo):
    sam.replies[photo] = rejection("stability_score_offset", "min_mask_region_area")
    done = run("everything", "photo.png", "--stability-score-offset", "-1")
    assert done.exit_code == 1
    assert done.stderr.startswith(
        "error: photo.png: --stability-score-offset: expected something else, got this; --min-"
    )


def test_coco_format(run, sam, photo, tmp_path):
    assert run("everything", "photo.png", "--format", "coco", "--out", "found.json").exit_code == 0
    loaded = COCO(tmp_path / "found.json")
    assert [image["file_name"] for image in loaded.loadImgs(loaded.getImgIds())] == ["photo.png"]
    assert [found["area"] for found in loaded.loadAnns(loaded.getAnnIds())] == [400, 100]


def test_picture_shows_each_object_in_its_own_colour(run, sam, photo, tmp_path):
    done = run("everything", "photo.png", "--picture", "all.png")
    assert "wrote photo_records.json and all.png" in done.stdout
    with Image.open(tmp_path / "all.png") as drawn, Image.open(tmp_path / "photo.png") as before:
        edges = {drawn.getpixel((x0, y0)) for x0, y0, _, _ in SQUARES}
        assert len(edges) == 2
        assert drawn.getpixel((50, 35)) == before.getpixel((50, 35))


def test_several_images_as_json(run, sam, photo, tmp_path):
    (tmp_path / "other.png").write_bytes(picture(2))
    (tmp_path / "other_records.json").touch()
    done = run("everything", "*.png", "--json")
    assert done.exit_code == 1
    assert done.stderr.startswith("error: other.png: other_records.json exists; overwrite it with --force\n")
    result = json.loads(done.stdout)
    assert (result["image"], result["objects"], result["picture"]) == ("photo.png", 2, None)
    assert len(json.loads((tmp_path / result["file"]).read_text())) == 2
