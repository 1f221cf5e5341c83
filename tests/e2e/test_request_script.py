"""`client/request.py`: image and clicks in, mask and picture files out."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from PIL import Image, ImageDraw

from tests.e2e.server import ROOT

pytestmark = pytest.mark.e2e


def run(folder, *arguments) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, ROOT / "client" / "request.py", *arguments],
        cwd=folder,
        env={**os.environ, "MOBILE_SAM_API_KEY": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def shape_of(path) -> tuple[str, tuple[int, int]]:
    with Image.open(path) as picture:
        return picture.mode, picture.size


@pytest.fixture
def photo(tmp_path):
    picture = Image.new("RGB", (120, 80), (30, 90, 160))
    ImageDraw.Draw(picture).rectangle([30, 20, 90, 60], fill=(220, 200, 90))
    picture.save(tmp_path / "photo.jpg")
    return tmp_path / "photo.jpg"


def test_click_writes_mask_and_picture(server, photo):
    done = run(photo.parent, "photo.jpg", "--point", "60,40", "--url", server.url)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[0])
    assert (result["width"], result["height"], len(result["masks"])) == (120, 80, 1)
    assert shape_of(photo.parent / "mask.png") == ("1", (120, 80))
    assert shape_of(photo.parent / "segmented_image.png") == ("RGB", (120, 80))


def test_box_and_negative_click_write_a_cutout(server, photo):
    arguments = ["--box", "30,20,90,60", "--negative", "5,5", "--picture", "cutout", "--picture-out", "cut.png"]
    done = run(photo.parent, "photo.jpg", *arguments, "--url", server.url)
    assert done.returncode == 0, done.stderr
    assert shape_of(photo.parent / "cut.png") == ("RGBA", (120, 80))


def test_everything_writes_records(server, photo):
    done = run(photo.parent, "photo.jpg", "--everything", "records.json", "--points-per-side", "4", "--url", server.url)
    assert done.returncode == 0, done.stderr
    result = json.loads((photo.parent / "records.json").read_text())
    assert (result["width"], result["height"]) == (120, 80)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["photo.jpg", "--point", "500,40"], "error: 422: pos_coords[0]: expected a point inside the image"),
        (["absent.jpg", "--point", "1,1"], "No such file"),
        (
            ["photo.jpg", "--point", "1,1", "--url", "http://127.0.0.1:9"],
            "error: cannot connect to http://127.0.0.1:9",
        ),
    ],
    ids=["point outside", "no file", "no service"],
)
def test_error_is_printed_in_one_line(server, photo, arguments, message):
    done = run(photo.parent, "--url", server.url, *arguments)
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
