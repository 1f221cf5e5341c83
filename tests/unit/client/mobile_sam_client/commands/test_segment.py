"""`mobile-sam segment`."""

import io
import json

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco

from tests.unit.client.mobile_sam_client.commands.fake_sam import SIZE, picture
from tests.unit.client.mobile_sam_client.fake_service import make_reply, problem_reply

BOX = "segment photo.png --box 10,5,30,25"
TWO_OBJECTS = "--object point=1,2;negative=3,4;point=5,6 --object box=10,5,30,25"
MASK = np.zeros((SIZE[1], SIZE[0]), bool)
MASK[5:25, 10:30] = True


def test_several_objects_are_one_request_and_numbered_files(run, sam, photo, tmp_path):
    done = run(f"segment photo.png {TWO_OBJECTS} --format png --picture both.png")
    assert done.exit_code == 0
    ((path, fields),) = sam.requests
    assert path == "/mobile_sam"
    assert fields["prompts"] == [
        {"pos_coords": [[1, 2], [5, 6]], "neg_coords": [[3, 4]]},
        {"box": [10, 5, 30, 25]},
    ]
    assert done.stdout.splitlines() == [
        "photo.png: 60 x 40 pixels",
        "wrote photo_mask_1.png: score 0.750, 400 pixels in box 0,0,20,20",
        "wrote photo_mask_2.png: score 0.750, 400 pixels in box 10,5,30,25",
        "wrote both.png",
        "weights: none",
    ]
    with Image.open(tmp_path / "photo_mask_2.png") as mask:
        np.testing.assert_array_equal(np.asarray(mask), MASK * np.uint8(255))


def test_files_hold_an_array_rle_or_polygons(run, sam, photo, tmp_path):
    assert run(f"{BOX} --out new/mask.npy").exit_code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "new" / "mask.npy"), MASK, strict=True)
    for name in ("rle", "polygon"):
        assert run(f"{BOX} --format {name} --out {name}.json").exit_code == 0
    rle, polygon = (
        json.loads((tmp_path / f"{name}.json").read_text()) for name in ("rle", "polygon")
    )
    np.testing.assert_array_equal(coco.decode(rle.pop("segmentation")), MASK)
    ((ring,),) = polygon.pop("polygons")
    assert sorted(ring) == [[10, 5], [10, 25], [30, 5], [30, 25]]
    assert rle == polygon == {"bbox": [10, 5, 20, 20], "area": 400, "score": 0.75}


def test_json_has_a_line_for_each_image(run, sam, tmp_path):
    for name in ("a.png", "b.png", "c.png"):
        (tmp_path / name).write_bytes(picture(sum(name.encode())))
    sam.replies[picture(sum(b"b.png"))] = problem_reply(422, "invalid-image", "damaged")
    done = run("segment a.png [bc].png --box 10,5,30,25 --json --format png --picture {stem}.jpg")
    assert done.exit_code == 1
    first, last = map(json.loads, done.stdout.splitlines())
    assert (first["image"], last["image"]) == ("a.png", "c.png")
    assert first["masks"] == [
        {"file": "a_mask.png", "score": 0.75, "area": 400, "box": [10, 5, 30, 25]}
    ]
    assert (first["width"], first["height"], first["picture"], first["weights"]["name"]) == (
        *SIZE,
        "a.jpg",
        "none",
    )
    assert (
        done.stderr
        == "error: b.png: 422 invalid-image: damaged (request the-request)\nnote: A note.\n"
    )
    assert not (tmp_path / "b_mask.png").exists()


def test_images_of_several_folders_need_distinct_outputs(run, sam, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "photo.png").write_bytes(picture(1))
    done = run("segment a/photo.png b/photo.png --point 1,1")
    assert done.exit_code == 2
    assert "photo_mask.png is already used as an input or output file" in done.stderr
    assert not sam.requests
    assert run("segment */photo.png --point 1,1 --out {parent}/{stem}_mask.png").exit_code == 0
    assert sorted(file.parent.name for file in tmp_path.rglob("photo_mask.png")) == ["a", "b"]


def test_existing_files_are_overwritten_only_by_force(run, sam, photo, tmp_path):
    (tmp_path / "found.png").write_bytes(b"before")
    command = f"{BOX} --picture found.png --style cutout"
    done = run(command)
    assert (done.exit_code, done.stderr) == (
        1,
        "error: photo.png: found.png exists; overwrite it with --force\n",
    )
    assert sorted(file.name for file in tmp_path.iterdir()) == ["found.png", "photo.png"]
    assert not sam.requests
    done = run(f"{command} --force")
    assert done.stdout.splitlines()[1:3] == [
        "mask: score 0.750, 400 pixels in box 10,5,30,25",
        "wrote found.png",
    ]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["found.png", "photo.png"]
    with Image.open(tmp_path / "found.png") as cutout:
        assert (cutout.size, cutout.mode) == (SIZE, "RGBA")


def test_dash_is_standard_input_and_output(run, sam, photo, tmp_path):
    done = run("segment - --box 10,5,30,25 --out -", stdin=photo)
    with Image.open(io.BytesIO(done.stdout_bytes)) as mask:
        np.testing.assert_array_equal(np.asarray(mask), MASK * np.uint8(255))
    assert done.stderr.splitlines()[1] == "wrote -: score 0.750, 400 pixels in box 10,5,30,25"
    assert run("segment - --box 10,5,30,25", stdin=photo).exit_code == 0
    assert (tmp_path / "stdin_mask.png").exists()
    assert json.loads(run("everything - --out -", stdin=photo).stdout)[0]["area"] == 400


def test_larger_image_is_scaled_down_and_its_mask_back(run, sam, photo, tmp_path):
    assert run(f"{BOX} --max-side 30").exit_code == 0
    assert sam.requests[0][1]["prompts"] == [{"box": [5, 2.5, 15, 12.5]}]
    with Image.open(tmp_path / "photo_mask.png") as mask:
        assert (mask.size, mask.getbbox()) == (SIZE, (10, 4, 30, 24))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "expected at least one --point, a --box, or an --object"),
        ("--point left,top", "expected X,Y, 2 comma-separated numbers, got 'left,top'"),
        ("--point 1,nan", "expected X,Y, 2 comma-separated numbers, got '1,nan'"),
        ("--box 1,2,3", "expected X0,Y0,X1,Y1, 4 comma-separated numbers, got '1,2,3'"),
        ("--object circle=1,2", "separated by ';', got 'circle=1,2'"),
        ("--object negative=1,2", "expected at least one point, a box, or both"),
        (f"--point 1,2 {TWO_OBJECTS}", "cannot be combined with --point, --negative and --box"),
        ("--point 1,2 --out mask.bmp", "expected a .png or .npy or .json file, got mask.bmp"),
        ("--point 1,2 --out m.png --format npy", "expected a .npy file, got m.png"),
        ("--point 1,2 --picture p.jpg --style cutout", "expected a .png or .webp file, got p.jpg"),
        ("--point 1,2 --out ./photo.png", "photo.png is already used as an input"),
        ("--point 1,2 --out - --picture -", "- is already used as an input or output"),
        ("--point 1,2 --out - --json", "cannot be combined with a file on standard output"),
        (
            "--point 1,2 .",
            ". is a folder; use `mobile-sam batch . --out FOLDER`, or name images: './*.jpg'",
        ),
        ("--point 1,2 --url http://", "expected a URL such as http://127.0.0.1:3000"),
    ],
)
def test_wrong_usage_is_reported_before_any_request(run, sam, photo, arguments, message):
    done = run(f"segment photo.png {arguments}")
    assert done.exit_code == 2
    assert message in done.stderr
    assert not sam.requests


@pytest.mark.parametrize(
    ("arguments", "field", "option"),
    [
        ("--point 1,2 --point 903.0,310", "prompts[0].pos_coords[1]", "--point 903.0,310"),
        ("--point 1,2 --negative -3,4", "prompts[0].neg_coords[0][1]", "--negative -3,4"),
        ("--box 10,5,30,25", "prompts[0].box", "--box 10,5,30,25"),
        (TWO_OBJECTS, "prompts[0].pos_coords[1]", "--object 'point=1,2;negative=3,4;point=5,6'"),
        (TWO_OBJECTS, "prompts[1].box", "--object 'box=10,5,30,25'"),
        ("--box 10,5,30,25 --min-area 1", "min_mask_region_area", "--min-area"),
        ("--box 10,5,30,25", "body", "body"),
    ],
)
def test_rejected_field_is_named_as_it_was_typed(
    *, run, sam, photo, tmp_path, arguments, field, option
):
    errors = [{"field": field, "expected": "something else", "got": "this"}]
    document = {
        "type": "urn:mobile-sam:invalid-request",
        "status": 422,
        "detail": "no",
        "errors": errors,
    }
    sam.replies[photo] = make_reply(json.dumps(document).encode(), "application/problem+json", 422)
    done = run(f"segment photo.png {arguments}")
    assert (done.exit_code, done.stdout) == (1, "")
    assert (
        done.stderr
        == f"error: photo.png: {option}: expected something else, got this (request the-request)\n"
    )
    assert [file.name for file in tmp_path.iterdir()] == ["photo.png"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("absent*.png", "absent*.png: No such file or directory"),
        ("empty.png", "empty.png: expected a PNG, JPEG or WebP file, got an empty one"),
        ("photo.png --out photo.png/mask.png", "cannot write photo.png/mask.png: Not a directory"),
    ],
)
def test_unusable_file_is_reported_before_connecting(
    *, run, sam, photo, tmp_path, arguments, message
):
    (tmp_path / "empty.png").touch()
    sam.unreachable = True
    done = run(f"segment {arguments} --point 1,1")
    assert (done.exit_code, done.stderr) == (1, f"error: {message}\n")


def test_region_is_sent(run, sam, photo):
    for typed, sent in (("0,0,40.5,40", [0, 0, 40.5, 40]), ("auto", "auto")):
        assert run(f"{BOX} --force --region {typed}").exit_code == 0
        assert sam.requests[-1][1]["region"] == sent
    assert run("everything photo.png --region 0,0,40,40").exit_code == 0
    assert sam.requests[-1][1]["region"] == [0, 0, 40, 40]


def test_region_that_is_none_is_refused(run, photo):
    done = run(f"{BOX} --region 1,2,3")
    assert done.exit_code == 2
    assert "expected X0,Y0,X1,Y1" in done.stderr.replace("│", "").replace("\n", " ")


def test_clipped_options_are_printed_as_typed_and_in_json(run, sam, photo):
    typed = "segment photo.png --object box=10,5,30,25 --object box=-2,5,30,99 --clip"
    done = run(typed)
    assert done.exit_code == 0, done.output
    assert sam.requests[0][1]["clip"] is True
    assert "cut to the image: --object 'box=-2,5,30,99'" in done.stdout.splitlines()
    first, second = json.loads(run(f"{typed} --json --force").stdout)["masks"]
    assert ("clipped" in first, second["clipped"], second["box"]) == (
        False,
        ["box"],
        [0, 5, 30, 40],
    )
    assert (
        "cut to the image: --box -2,5,30,9"
        in run("segment photo.png --box -2,5,30,9 --clip --force").stdout
    )


def test_clip_is_off_by_default_and_errors_name_the_option(run, sam, photo):
    expected = 'a point inside the image: 0 <= x <= 60, 0 <= y <= 40, or send "clip": true'
    error = {"field": "prompts[0].box", "expected": expected, "got": "[-2, 5]"}
    document = {
        "type": "urn:mobile-sam:invalid-request",
        "status": 422,
        "detail": "no",
        "errors": [error],
    }
    sam.replies[photo] = make_reply(json.dumps(document).encode(), "application/problem+json", 422)
    done = run("segment photo.png --box -2,5,30,9")
    assert done.exit_code == 1
    assert "clip" not in sam.requests[0][1]
    limits = "0 <= x <= 60, 0 <= y <= 40"
    assert (
        f"--box -2,5,30,9: expected a point inside the image: {limits}, or use --clip, got [-2, 5]"
        in done.stderr
    )
