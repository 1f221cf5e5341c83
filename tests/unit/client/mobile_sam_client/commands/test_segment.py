"""`mobile-sam segment`."""

import json

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco

from tests.unit.client.mobile_sam_client.commands.fake_sam import SIZE, picture
from tests.unit.client.mobile_sam_client.fake_service import make_reply, problem_reply

BOX = ("--box", "10,5,30,25")
TWO_OBJECTS = ("--object", "point=1,2;negative=3,4;point=5,6", "--object", "box=10,5,30,25")


def expected_mask() -> np.ndarray:
    mask = np.zeros((SIZE[1], SIZE[0]), bool)
    mask[5:25, 10:30] = True
    return mask


def rejection(*fields: str):
    """Reply that rejects fields of a request."""
    errors = [{"field": field, "expected": "something else", "got": "this"} for field in fields]
    document = {"type": "urn:mobile-sam:invalid-request", "status": 422, "detail": "no", "errors": errors}
    return make_reply(json.dumps(document).encode(), "application/problem+json", 422)


def test_options_are_sent_as_one_object(run, sam, photo):
    done = run("segment", "photo.png", "--point", "1,2", "--point", "3.5,4", "--negative", "-5,6", *BOX)
    assert done.exit_code == 0
    ((path, fields),) = sam.requests
    assert path == "/mobile_sam"
    assert fields["prompts"] == [
        {"pos_coords": [[1, 2], [3.5, 4]], "neg_coords": [[-5, 6]], "box": [10, 5, 30, 25]},
    ]
    assert (fields["segmented_image"], fields["multimask_output"]) == ("none", False)
    assert not {"min_mask_region_area", "mask_threshold"} & set(fields)


def test_several_objects_are_one_request_and_numbered_files(run, sam, photo, tmp_path):
    done = run("segment", "photo.png", *TWO_OBJECTS, "--picture", "both.png")
    assert done.exit_code == 0
    ((_, fields),) = sam.requests
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
        np.testing.assert_array_equal(np.asarray(mask), expected_mask() * np.uint8(255))


def test_multimask_writes_the_candidates_best_first(run, sam, photo):
    done = run("segment", "photo.png", *TWO_OBJECTS, "--multimask", "--json")
    masks = json.loads(done.stdout)["masks"]
    assert sam.requests[0][1]["multimask_output"] is True
    assert [mask["file"] for mask in masks] == [f"photo_mask_{a}_{b}.png" for a in (1, 2) for b in (1, 2, 3)]
    assert [mask["score"] for mask in masks] == [0.75, 0.5, 0.25] * 2
    assert [mask["area"] for mask in masks] == [400, 380, 360] * 2


def test_thresholds_are_sent(run, sam, photo):
    assert run("segment", "photo.png", *BOX, "--min-area", "50", "--mask-threshold", "-0.5").exit_code == 0
    fields = sam.requests[0][1]
    assert (fields["min_mask_region_area"], fields["mask_threshold"]) == (50, -0.5)


@pytest.mark.usefixtures("sam", "photo")
@pytest.mark.parametrize("options", [("--out", "new/mask.npy"), ("--format", "npy", "--out", "new/mask.npy")])
def test_npy_file_holds_a_bool_array(run, tmp_path, options):
    assert run("segment", "photo.png", *BOX, *options).exit_code == 0
    mask = np.load(tmp_path / "new" / "mask.npy")
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask, expected_mask())


def test_json_files_hold_rle_or_polygons(run, sam, photo, tmp_path):
    for name in ("rle", "polygon"):
        assert run("segment", "photo.png", *BOX, "--format", name, "--out", f"{name}.json").exit_code == 0
    rle, polygon = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("rle", "polygon"))
    np.testing.assert_array_equal(coco.decode(rle.pop("segmentation")), expected_mask())
    ((ring,),) = polygon.pop("polygons")
    assert sorted(ring) == [[10, 5], [10, 25], [30, 5], [30, 25]]
    assert rle == polygon == {"bbox": [10, 5, 20, 20], "area": 400, "score": 0.75}


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


def test_note_on_the_weights_goes_to_standard_error_except_of_official_ones(run, sam, photo):
    assert run("segment", "photo.png", *BOX).stderr == "note: A note.\n"
    sam.weights["name"] = "official"
    done = run("segment", "photo.png", *BOX, "--force")
    assert (done.stdout.splitlines()[-1], done.stderr) == ("weights: official", "")


def test_json_has_a_line_for_each_image(run, sam, tmp_path):
    for name in ("a.png", "b.png", "c.png"):
        (tmp_path / name).write_bytes(picture(sum(name.encode())))
    sam.replies[picture(sum(b"b.png"))] = problem_reply(422, "invalid-image", "damaged")
    done = run("segment", "a.png", "[bc].png", *BOX, "--json", "--picture", "{stem}.jpg")
    assert done.exit_code == 1
    first, last = map(json.loads, done.stdout.splitlines())
    assert (first["image"], last["image"]) == ("a.png", "c.png")
    assert first["masks"] == [{"file": "a_mask.png", "score": 0.75, "area": 400, "box": [10, 5, 30, 25]}]
    assert (first["width"], first["height"], first["picture"], first["weights"]["name"]) == (*SIZE, "a.jpg", "none")
    assert done.stderr == "error: b.png: 422 invalid-image: damaged (request the-request)\nnote: A note.\n"
    assert not (tmp_path / "b_mask.png").exists()


def test_images_of_several_folders_need_distinct_outputs(run, sam, tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "photo.png").write_bytes(picture(1))
    done = run("segment", "a/photo.png", "b/photo.png", *BOX)
    assert done.exit_code == 2
    assert "photo_mask.png is already used as an input or output file" in done.stderr
    assert not sam.requests
    assert run("segment", "*/photo.png", *BOX, "--out", "{parent}/{stem}_mask.png").exit_code == 0
    assert sorted(file.parent.name for file in tmp_path.rglob("photo_mask.png")) == ["a", "b"]


@pytest.mark.parametrize("existing", ["photo_mask.png", "found.png"])
def test_existing_files_are_overwritten_only_by_force(run, sam, photo, tmp_path, existing):
    (tmp_path / existing).write_bytes(b"before")
    (tmp_path / "other.png").write_bytes(picture(2))
    arguments = ("segment", "photo.png", *BOX, "--picture", "found.png")
    done = run(*arguments)
    assert (done.exit_code, done.stderr) == (1, f"error: photo.png: {existing} exists; overwrite it with --force\n")
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([existing, "other.png", "photo.png"])
    assert not sam.requests
    assert run(*arguments, "--force").exit_code == 0
    assert (tmp_path / existing).read_bytes() != b"before"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param((), "expected at least one --point, a --box, or an --object", id="no prompt"),
        pytest.param(("--negative", "1,2"), "expected at least one --point, a --box", id="only negative"),
        pytest.param(("--point", "1"), "expected X,Y, 2 comma-separated numbers, got '1'", id="one number"),
        pytest.param(("--point", "left,top"), "expected X,Y, 2 comma-separated numbers, got 'left,top'", id="words"),
        pytest.param(("--point", "1,nan"), "expected X,Y, 2 comma-separated numbers, got '1,nan'", id="NaN"),
        pytest.param(("--box", "1,2,3"), "expected X0,Y0,X1,Y1, 4 comma-separated numbers, got '1,2,3'", id="box of 3"),
        pytest.param(("--object", "circle=1,2"), "separated by ';', got 'circle=1,2'", id="unknown name"),
        pytest.param(("--object", "negative=1,2"), "expected at least one point, a box, or both", id="negative object"),
        pytest.param(("--object", "point=1"), "expected X,Y, 2 comma-separated numbers, got '1'", id="object"),
        pytest.param((*BOX, *TWO_OBJECTS), "cannot be combined with --point, --negative and --box", id="both"),
        pytest.param((*BOX, "--out", "mask.bmp"), "expected a .png or .npy or .json file, got mask.bmp", id="suffix"),
        pytest.param((*BOX, "--out", "m.png", "--format", "npy"), "expected a .npy file, got m.png", id="format"),
        pytest.param((*BOX, "--format", "bmp"), "'png', 'npy', 'rle', 'polygon'", id="unknown format"),
        pytest.param(
            (*BOX, "--picture", "p.jpg", "--style", "cutout"), "expected a .png or .webp file, got p.jpg", id="cutout"
        ),
        pytest.param((*BOX, "--out", "./photo.png"), "photo.png is already used as an input", id="out is photo"),
        pytest.param((*BOX, "--picture", "photo_mask.png"), "photo_mask.png is already used", id="picture is mask"),
        pytest.param((*BOX, "--url", "http://"), "expected a URL such as http://127.0.0.1:3000", id="url"),
        pytest.param(
            (*BOX, "--local", "--url", "http://127.0.0.1:1"), "--url and --local cannot be combined", id="local and url"
        ),
        pytest.param(
            (*BOX, "--url", "http://127.0.0.1:1", "--local"), "--url and --local cannot be combined", id="url and local"
        ),
    ],
)
def test_wrong_usage_is_reported_before_any_request(run, sam, photo, arguments, message):
    done = run("segment", "photo.png", *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert not sam.requests


@pytest.mark.parametrize(
    ("arguments", "field", "option"),
    [
        (("--point", "1,2", "--point", "903.0,310"), "prompts[0].pos_coords[1]", "--point 903.0,310"),
        (("--point", "1,2", "--negative", "-3,4"), "prompts[0].neg_coords[0][1]", "--negative -3,4"),
        (("--point", "1,2"), "prompts[0].pos_coords", "--point"),
        (BOX, "prompts[0].box", "--box 10,5,30,25"),
        (TWO_OBJECTS, "prompts[0].pos_coords[1]", "--object 'point=1,2;negative=3,4;point=5,6'"),
        (TWO_OBJECTS, "prompts[1].box", "--object 'box=10,5,30,25'"),
        ((*BOX, "--min-area", "1"), "min_mask_region_area", "--min-area"),
        ((*BOX, "--mask-threshold", "90"), "mask_threshold", "--mask-threshold"),
        (BOX, "prompts", "--object"),
        (BOX, "body", "body"),
    ],
)
def test_rejected_field_is_named_as_it_was_typed(*, run, sam, photo, tmp_path, arguments, field, option):
    sam.replies[photo] = rejection(field)
    done = run("segment", "photo.png", *arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"error: photo.png: {option}: expected something else, got this (request the-request)\n"
    assert [file.name for file in tmp_path.iterdir()] == ["photo.png"]


def test_rejection_without_fields_is_printed_as_it_comes(run, sam, photo):
    sam.replies[photo] = problem_reply(422, "invalid-request", "expected something else")
    done = run("segment", "photo.png", *BOX)
    assert done.stderr == "error: photo.png: 422 invalid-request: expected something else (request the-request)\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("absent.png",), "absent.png: No such file or directory"),
        (("absent*.png",), "absent*.png: No such file or directory"),
        ((".", "--out", "mask.png"), ".: Is a directory"),
        (("empty.png",), "empty.png: expected a PNG, JPEG or WebP file, got an empty one"),
        (("photo.png", "--out", "photo.png/mask.png"), "cannot write photo.png/mask.png: Not a directory"),
    ],
    ids=["absent", "no match", "folder", "empty", "output in a file"],
)
def test_unusable_file_is_reported_before_connecting(*, run, sam, photo, tmp_path, arguments, message):
    (tmp_path / "empty.png").touch()
    sam.unreachable = True
    done = run("segment", *arguments, *BOX)
    assert (done.exit_code, done.stderr) == (1, f"error: {message}\n")
