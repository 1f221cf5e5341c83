"""`mobile-sam segment`."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco

from tests.unit.client.mobile_sam_client.commands.fake_sam import SIZE
from tests.unit.client.mobile_sam_client.fake_service import refuses

BOX = ("--box", "10,5,30,25")


def expected_mask() -> np.ndarray:
    mask = np.zeros((SIZE[1], SIZE[0]), bool)
    mask[5:25, 10:30] = True
    return mask


def test_prompts_go_to_the_service_as_they_were_given(run, sam, photo):
    done = run("segment", "photo.png", "--point", "1,2", "--point", "3.5,4", "--negative", "-5,6", *BOX)
    assert done.exit_code == 0
    ((path, fields),) = sam.asked
    assert path == "/mobile_sam"
    assert (fields["pos_coords"], fields["neg_coords"]) == ([[1, 2], [3.5, 4]], [[-5, 6]])
    assert fields["box"] == [10, 5, 30, 25]
    assert fields["segmented_image"] == "none"


def test_the_mask_is_a_black_and_white_png_unless_told(run, sam, photo, tmp_path):
    assert run("segment", "photo.png", *BOX).exit_code == 0
    with Image.open(tmp_path / "mask.png") as mask:
        assert mask.mode == "L"
        np.testing.assert_array_equal(np.asarray(mask), expected_mask() * np.uint8(255))


def test_the_mask_as_a_numpy_file(run, sam, photo, tmp_path):
    assert run("segment", "photo.png", *BOX, "--out", "new/mask.npy").exit_code == 0
    mask = np.load(tmp_path / "new" / "mask.npy")
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask, expected_mask())


def test_the_mask_as_coco_describes_it(run, sam, photo, tmp_path):
    assert run("segment", "photo.png", *BOX, "--out", "mask.json").exit_code == 0
    described = json.loads((tmp_path / "mask.json").read_text())
    np.testing.assert_array_equal(coco.decode(described["segmentation"]), expected_mask())
    assert (described["bbox"], described["area"], described["score"]) == ([10, 5, 20, 20], 400, 0.75)


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
def test_a_picture_is_written_in_the_kind_that_its_name_says(run, sam, tmp_path, name, mode):
    style = name.partition(".")[0]
    assert run("segment", "photo.png", *BOX, "--picture", name, "--style", style).exit_code == 0
    assert sam.asked[0][1]["segmented_image"] == style
    with Image.open(tmp_path / name) as picture:
        assert picture.size == SIZE
        assert picture.mode == mode


def test_what_was_found_is_printed_with_the_note_on_the_weights(run, sam, photo):
    done = run("segment", "photo.png", *BOX)
    assert done.stdout.splitlines() == [
        "photo.png: 60 x 40 pixels",
        "mask: score 0.750, 400 pixels in box 10,5,30,25",
        "wrote mask.png",
        "weights: none",
    ]
    assert done.stderr == "note: A note.\n"


def test_json_for_a_program(run, sam, photo):
    said = json.loads(run("segment", "photo.png", *BOX, "--json", "--picture", "found.png").stdout)
    assert (said["score"], said["area"], said["box"]) == (0.75, 400, [10, 5, 30, 25])
    assert (said["mask"], said["picture"], said["weights"]["name"]) == ("mask.png", "found.png", "none")
    assert (said["width"], said["height"]) == SIZE


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "expected at least one --point or a --box"),
        (("--negative", "1,2"), "expected at least one --point or a --box"),
        (("--point", "1"), "expected X,Y, 2 numbers with commas between, got '1'"),
        (("--point", "1,nan"), "expected X,Y, 2 numbers with commas between, got '1,nan'"),
        (("--box", "1,2,3"), "expected X0,Y0,X1,Y1, 4 numbers with commas between, got '1,2,3'"),
        ((*BOX, "--out", "mask.bmp"), "expected a name that ends in .png or .npy or .json, got mask.bmp"),
        ((*BOX, "--picture", "p.jpg", "--style", "cutout"), "expected a name that ends in .png or .webp, got p.jpg"),
        ((*BOX, "--out", "./photo.png"), "expected another file than photo.png, which is read or written, too"),
        ((*BOX, "--picture", "mask.png"), "expected another file than mask.png, which is read or written, too"),
        ((*BOX, "--local", "--url", "http://127.0.0.1:1"), "expected --url or --local, got both"),
        ((*BOX, "--url", "http://127.0.0.1:1", "--local"), "expected --url or --local, got both"),
    ],
    ids=[
        *("no prompt", "negative alone", "half a point", "no number", "half a box", "mask", "cutout"),
        *("over the photo", "over the mask", "local", "url"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_sent(run, sam, photo, arguments, message):
    done = run("segment", "photo.png", *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert not sam.asked


def test_a_refusal_is_one_line_and_writes_nothing(run, sam, photo, tmp_path):
    sam.instead[photo] = refuses(422, "invalid-request", "box: expected something else")
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
def test_a_wrong_file_is_one_line(run, sam, tmp_path, name, message):
    (tmp_path / "empty.png").touch()
    done = run("segment", name, *BOX)
    assert (done.exit_code, done.stderr) == (1, message)


def test_a_place_that_cannot_be_written_to_is_told_before_anything_is_sent(run, sam, photo):
    done = run("segment", "photo.png", *BOX, "--out", "photo.png/mask.png")
    assert (done.exit_code, done.stderr) == (1, "error: cannot write photo.png/mask.png: Not a directory\n")
    assert not sam.asked
