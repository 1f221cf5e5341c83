"""`mobile-sam everything`, and the options of the mask generator."""

import json

import pytest
from pycocotools.coco import COCO

from tests.unit.client.mobile_sam_client.commands.fake_sam import SIZE
from utils.api.requests import EverythingRequest, ImageFields

GENERATOR_FIELDS = (
    EverythingRequest.model_fields.keys() - ImageFields.model_fields.keys() - {"progress"}
)


def test_records_are_written_and_summarized(run, sam, photo, tmp_path):
    done = run("everything photo.png")
    assert done.exit_code == 0
    first, _ = json.loads((tmp_path / "photo_records.json").read_text())
    assert (first["bbox"], first["crop_box"], first["predicted_iou"]) == (
        [0, 0, 20, 20],
        [0, 0, *SIZE],
        0.9,
    )
    assert (
        done.stdout
        == "photo.png: 60 x 40 pixels, 2 objects\nwrote photo_records.json\nweights: none\n"
    )
    assert sam.requests[0][1].keys() == {"input_image", "progress"}
    assert done.stderr == "note: A note.\n"  # no progress bar without a terminal


@pytest.mark.parametrize("command", ["everything photo.png", "batch . --out found"])
def test_every_parameter_of_the_generator_is_an_option(run, sam, photo, command):
    options = {
        f"--{name.replace('_', '-')}": name for name in GENERATOR_FIELDS - {"min_mask_region_area"}
    }
    options["--min-area"] = "min_mask_region_area"
    done = run(command, *(word for option in options for word in (option, "1")))
    assert done.exit_code == 0, done.output
    assert sam.requests[0][1].items() >= dict.fromkeys(options.values(), 1).items()


def test_coco_format(run, sam, photo, tmp_path):
    done = run("everything photo.png --format coco --out found.json --picture all.jpg --json")
    document = json.loads(done.stdout)
    assert (document["objects"], document["file"], document["picture"]) == (
        2,
        "found.json",
        "all.jpg",
    )
    loaded = COCO(tmp_path / "found.json")
    assert [image["file_name"] for image in loaded.loadImgs(loaded.getImgIds())] == ["photo.png"]
    assert [found["area"] for found in loaded.loadAnns(loaded.getAnnIds())] == [400, 100]
