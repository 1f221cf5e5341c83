"""`mobile-sam segment` and `mobile-sam everything`."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco
from pycocotools.coco import COCO

from tests.unit.client.mobile_sam_client.commands.fake_sam import SIZE, SQUARES
from tests.unit.client.mobile_sam_client.fake_service import problem_reply

BOX = ("--box", "10,5,30,25")


def expected_mask() -> np.ndarray:
    mask = np.zeros((SIZE[1], SIZE[0]), bool)
    mask[5:25, 10:30] = True
    return mask


def test_prompts_are_sent_unchanged(run, sam, photo):
    done = run("segment", "photo.png", "--point", "1,2", "--point", "3.5,4", "--negative", "-5,6", *BOX)
    assert done.exit_code == 0
    ((path, fields),) = sam.requests
    assert path == "/mobile_sam"
    assert (fields["pos_coords"], fields["neg_coords"]) == ([[1, 2], [3.5, 4]], [[-5, 6]])
    assert fields["box"] == [10, 5, 30, 25]
    assert fields["segmented_image"] == "none"


def test_mask_file_follows_the_suffix(run, sam, photo, tmp_path):
    for options in ((), ("--out", "new/mask.npy"), ("--out", "mask.json")):
        assert run("segment", "photo.png", *BOX, *options).exit_code == 0
    with Image.open(tmp_path / "mask.png") as picture:
        assert picture.mode == "L"
        np.testing.assert_array_equal(np.asarray(picture), expected_mask() * np.uint8(255))
    mask = np.load(tmp_path / "new" / "mask.npy")
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask, expected_mask())
    annotation = json.loads((tmp_path / "mask.json").read_text())
    np.testing.assert_array_equal(coco.decode(annotation["segmentation"]), expected_mask())
    assert (annotation["bbox"], annotation["area"], annotation["score"]) == ([10, 5, 20, 20], 400, 0.75)


@pytest.mark.usefixtures("photo")
@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("overlay.png", "RGB"),
        ("overlay.JPG", "RGB"),
        ("cutout.png", "RGBA"),
        ("cutout.webp", "RGBA"),
    ],
)
def test_picture_format_follows_the_suffix(run, sam, tmp_path, name, mode):
    style = name.partition(".")[0]
    assert run("segment", "photo.png", *BOX, "--picture", name, "--style", style).exit_code == 0
    assert sam.requests[0][1]["segmented_image"] == style
    with Image.open(tmp_path / name) as picture:
        assert picture.size == SIZE
        assert picture.mode == mode


def test_result_is_printed_with_the_note_on_the_weights(run, sam, photo):
    done = run("segment", "photo.png", *BOX)
    assert done.stdout.splitlines() == [
        "photo.png: 60 x 40 pixels",
        "mask: score 0.750, 400 pixels in box 10,5,30,25",
        "wrote mask.png",
        "weights: none",
    ]
    assert done.stderr == "note: A note.\n"


def test_result_as_json(run, sam, photo):
    result = json.loads(run("segment", "photo.png", *BOX, "--json", "--picture", "found.png").stdout)
    assert (result["score"], result["area"], result["box"]) == (0.75, 400, [10, 5, 30, 25])
    assert (result["mask"], result["picture"], result["weights"]["name"]) == ("mask.png", "found.png", "none")
    assert (result["width"], result["height"]) == SIZE


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "expected at least one --point or a --box"),
        (("--negative", "1,2"), "expected at least one --point or a --box"),
        (("--point", "1"), "expected X,Y, 2 comma-separated numbers, got '1'"),
        (("--point", "left,top"), "expected X,Y, 2 comma-separated numbers, got 'left,top'"),
        (("--point", "1,nan"), "expected X,Y, 2 comma-separated numbers, got '1,nan'"),
        (("--box", "1,2,3"), "expected X0,Y0,X1,Y1, 4 comma-separated numbers, got '1,2,3'"),
        ((*BOX, "--out", "mask.bmp"), "expected a .png or .npy or .json file, got mask.bmp"),
        ((*BOX, "--picture", "p.jpg", "--style", "cutout"), "expected a .png or .webp file, got p.jpg"),
        ((*BOX, "--out", "./photo.png"), "photo.png is already used as an input or output file"),
        ((*BOX, "--picture", "mask.png"), "mask.png is already used as an input or output file"),
        ((*BOX, "--local", "--url", "http://127.0.0.1:1"), "--url and --local cannot be combined"),
        ((*BOX, "--url", "http://127.0.0.1:1", "--local"), "--url and --local cannot be combined"),
    ],
    ids=[
        *("no prompt", "only negative", "one number", "words", "NaN", "three numbers", "mask suffix", "cutout suffix"),
        *("out is photo", "picture is mask", "local and url", "url and local"),
    ],
)
def test_wrong_usage_is_reported_before_any_request(run, sam, photo, arguments, message):
    done = run("segment", "photo.png", *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert not sam.requests


def test_problem_is_one_line_and_writes_nothing(run, sam, photo, tmp_path):
    sam.replies[photo] = problem_reply(422, "invalid-request", "box: expected something else")
    done = run("segment", "photo.png", *BOX)
    assert done.exit_code == 1
    assert done.stderr == "error: 422 invalid-request: box: expected something else (request the-request)\n"
    assert not (tmp_path / "mask.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("absent.png",), "absent.png: No such file or directory"),
        ((".",), ".: Is a directory"),
        (("empty.png",), "empty.png: expected a PNG, JPEG or WebP file, got an empty one"),
        (("photo.png", "--out", "photo.png/mask.png"), "cannot write photo.png/mask.png: Not a directory"),
    ],
    ids=["absent", "folder", "empty", "output in a file"],
)
def test_unusable_file_is_reported_before_any_request(*, run, sam, photo, tmp_path, arguments, message):
    (tmp_path / "empty.png").touch()
    done = run("segment", *arguments, *BOX)
    assert (done.exit_code, done.stderr) == (1, f"error: {message}\n")
    assert not sam.requests


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
    assert "points_per_side" not in sam.requests[0][1]
    assert done.stderr == "note: A note.\n"  # no progress bar without a terminal


def test_coco_format_and_grid(run, sam, photo, tmp_path):
    arguments = ("--format", "coco", "--out", "found.json", "--points-per-side", "8")
    assert run("everything", "photo.png", *arguments).exit_code == 0
    assert sam.requests[0][1]["points_per_side"] == 8
    loaded = COCO(tmp_path / "found.json")
    assert [image["file_name"] for image in loaded.loadImgs(loaded.getImgIds())] == ["photo.png"]
    assert [found["area"] for found in loaded.loadAnns(loaded.getAnnIds())] == [400, 100]


def test_picture_shows_each_object_in_its_own_colour(run, sam, photo, tmp_path):
    done = run("everything", "photo.png", "--picture", "all.png")
    assert "wrote records.json and all.png" in done.stdout
    with Image.open(tmp_path / "all.png") as drawn, Image.open(tmp_path / "photo.png") as before:
        edges = {drawn.getpixel((x0, y0)) for x0, y0, _, _ in SQUARES}
        assert len(edges) == 2
        assert drawn.getpixel((50, 35)) == before.getpixel((50, 35))
