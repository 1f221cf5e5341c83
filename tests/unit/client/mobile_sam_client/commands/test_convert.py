"""`mobile-sam convert`: the annotations of a batch, in the forms of other tools."""

import json

import numpy as np
import pytest
import supervision
import yaml

from tests.unit.client.mobile_sam_client.commands.fake_sam import picture
from tests.unit.client.mobile_sam_client.fake_service import rotated_90

CONVERT = "convert found/annotations.json --images photos --out converted --to"


@pytest.fixture
def annotated(run, sam, tmp_path) -> None:
    """Annotate a photo that is displayed as 40 x 60 pixels with two squares."""
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(picture(1, (60, 40), "JPEG", exif=rotated_90()))
    assert run("batch photos --out found --no-overlays").exit_code == 0


@pytest.mark.usefixtures("annotated")
@pytest.mark.parametrize("form", ["yolo", "voc", "labelme"])
def test_objects_are_those_of_the_batch(run, tmp_path, form):
    done = run(CONVERT, form)
    assert (done.exit_code, done.stdout) == (0, "wrote converted: 1 images\n")
    photos, out, data = str(tmp_path / "photos"), tmp_path / "converted", supervision.DetectionDataset
    read = {
        "yolo": lambda: data.from_yolo(photos, str(out / "labels"), str(out / "data.yaml")),
        "voc": lambda: data.from_pascal_voc(photos, str(out)),
        "labelme": lambda: data.from_labelme(photos, str(out)),
    }
    (detections,) = read[form]().annotations.values()
    assert np.allclose(sorted(detections.xyxy.tolist()), [[0, 0, 20, 20], [30, 10, 40, 20]], atol=1)
    if form == "yolo":
        names = yaml.safe_load((out / "data.yaml").read_text())
        assert names == {"train": "images", "val": "images", "names": ["object"]}


@pytest.mark.usefixtures("annotated")
def test_rotated_photos_keep_the_displayed_size(run, tmp_path):
    assert run(CONVERT, "labelme").exit_code == 0
    document = json.loads((tmp_path / "converted" / "a.json").read_text())
    assert (document["imageWidth"], document["imageHeight"]) == (40, 60)


@pytest.mark.usefixtures("annotated")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "cannot convert found/annotations.json: 'categories' is missing"),
        ("no", "cannot convert found/annotations.json: Expecting value"),
        (
            '{"annotations": [], "categories": [], "images": [{"id": 1, "file_name": "../", "width": 9, "height": 9}]}',
            "outside the images directory",
        ),
    ],
)
def test_wrong_annotations_are_reported_in_one_line(run, tmp_path, content, message):
    (tmp_path / "found" / "annotations.json").write_text(content)
    done = run(CONVERT, "yolo")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert message in done.stderr
