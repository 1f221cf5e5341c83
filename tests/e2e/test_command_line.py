"""The `mobile-sam` command and `client/request.py` with the real service."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

from harness import ROOT
from harness.server import base_environment
from tests.e2e.pictures import scene

pytestmark = pytest.mark.e2e

KEY = "a-key-of-16-characters"


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments in the folder."""
    environment = {**base_environment(), "PYTHONPATH": str(ROOT / "client"), **environment}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


def mobile_sam(
    folder: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    return run(folder, "-m", "mobile_sam_client", *arguments, **environment)


def test_several_images_and_objects_with_candidates(server, tmp_path):
    for number in (1, 2):
        (tmp_path / f"{number}.png").write_bytes(scene(number))
    objects = ("--object", "point=200,150", "--object", "box=100,80,300,250;negative=5,5")
    arguments = (
        "[12].png",
        *objects,
        "--multimask",
        "--format",
        "polygon",
        "--json",
        "--url",
        server.url,
    )
    done = mobile_sam(tmp_path, "segment", *arguments)
    assert done.returncode == 0, done.stderr
    for image in map(json.loads, done.stdout.splitlines()):
        assert len(image["masks"]) == 6
        for mask in image["masks"]:
            polygons = json.loads((tmp_path / mask["file"]).read_text())["polygons"]
            assert mask["area"] == 0 or len(polygons[0][0]) >= 3


def test_batch_resumes_after_a_failure(server, tmp_path):
    (tmp_path / "photos" / "below").mkdir(parents=True)
    (tmp_path / "photos" / "one.png").write_bytes(scene(1))
    (tmp_path / "photos" / "below" / "two.png").write_bytes(scene(2, (320, 480)))
    (tmp_path / "photos" / "no.png").write_bytes(b"no image")
    batch = ("batch", "photos", "--out", "found", "--points-per-side", "3", "--url", server.url)
    done = mobile_sam(tmp_path, *batch)
    assert done.returncode == 1, done.stderr
    assert "failed: no.png: 422 invalid-image: " in done.stderr

    (tmp_path / "photos" / "no.png").unlink()
    again = mobile_sam(tmp_path, *batch)
    assert again.returncode == 0, again.stderr
    assert "skipped 2" in " ".join(again.stdout.split())

    loaded = COCO(tmp_path / "found" / "annotations.json")
    images = loaded.loadImgs(loaded.getImgIds())
    assert [(image["file_name"], image["width"]) for image in images] == [
        ("below/two.png", 320),
        ("one.png", 480),
    ]
    for found in loaded.loadAnns(loaded.getAnnIds()):
        assert loaded.annToMask(found).sum() == found["area"]


def test_request_script_writes_mask_picture_and_records(server, tmp_path):
    (tmp_path / "photo.png").write_bytes(scene(1))
    script = (str(ROOT / "client" / "request.py"), "photo.png", "--url", server.url)
    done = run(
        tmp_path, *script, "--box", "100,80,300,250", "--negative", "5,5", "--picture", "cutout"
    )
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout.splitlines()[0])["masks"]
    with (
        Image.open(tmp_path / "mask.png") as mask,
        Image.open(tmp_path / "segmented_image.png") as cutout,
    ):
        assert np.count_nonzero(mask) == found["area"]
        np.testing.assert_array_equal(np.asarray(cutout)[..., 3] > 0, np.asarray(mask) > 0)
    done = run(tmp_path, *script, "--everything", "records.json", "--points-per-side", "4")
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "records.json").read_text())
    assert (result["width"], result["height"]) == (480, 320)
