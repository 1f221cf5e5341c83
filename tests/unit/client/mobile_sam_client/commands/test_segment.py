"""`mobile-sam segment`."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco

from tests.unit.client.mobile_sam_client.commands.fake_sam import SIZE
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


def test_mask_is_a_black_and_white_png_by_default(run, sam, photo, tmp_path):
    assert run("segment", "photo.png", *BOX).exit_code == 0
    with Image.open(tmp_path / "mask.png") as mask:
        assert mask.mode == "L"
        np.testing.assert_array_equal(np.asarray(mask), expected_mask() * np.uint8(255))


def test_mask_as_numpy_file(run, sam, photo, tmp_path):
    assert run("segment", "photo.png", *BOX, "--out", "new/mask.npy").exit_code == 0
    mask = np.load(tmp_path / "new" / "mask.npy")
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask, expected_mask())


def test_mask_as_coco_json(run, sam, photo, tmp_path):
    assert run("segment", "photo.png", *BOX, "--out", "mask.json").exit_code == 0
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
        *("no prompt", "only negative", "one number", "NaN", "three numbers", "mask suffix", "cutout suffix"),
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
    ("name", "message"),
    [
        ("absent.png", "error: absent.png: No such file or directory\n"),
        (".", "error: .: Is a directory\n"),
        ("empty.png", "error: empty.png: expected a PNG, JPEG or WebP file, got an empty one\n"),
    ],
)
def test_unreadable_image_is_reported_in_one_line(run, sam, tmp_path, name, message):
    (tmp_path / "empty.png").touch()
    done = run("segment", name, *BOX)
    assert (done.exit_code, done.stderr) == (1, message)


def test_unwritable_output_is_reported_before_any_request(run, sam, photo):
    done = run("segment", "photo.png", *BOX, "--out", "photo.png/mask.png")
    assert (done.exit_code, done.stderr) == (1, "error: cannot write photo.png/mask.png: Not a directory\n")
    assert not sam.requests
