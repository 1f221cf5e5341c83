"""Objects of a saved project, followed through images by the command and the real service."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco

from benchmarks.sequences import SCENES, render
from tests.e2e.test_command_line import mobile_sam

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def saved(path: Path, picture: np.ndarray, masks: dict[str, np.ndarray]) -> None:
    """Write a project as the page saves it, with these objects on its only image."""
    height, width = picture.shape[:2]
    objects, shown = [], []
    for number, (name, mask) in enumerate(masks.items(), 1):
        encoded = coco.encode(np.asfortranarray(mask, np.uint8))
        record = {"size": [height, width], "counts": encoded["counts"].decode()}
        shown.append([number, {**record, "area": int(mask.sum()), "score": None}])
        objects.append({"id": number, "name": name, "classId": 1})
    work = {"shown": shown, "objects": {"now": {"list": objects, "activeId": 1}}}
    image = {"name": "frames/8.png", "path": "images/1/8.png", "width": width, "height": height}
    classes = [{"id": 1, "name": "object", "colour": "#ff0000"}]
    document = {"version": 1, "classes": classes, "images": [{**image, "work": work}]}
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("project.json", json.dumps(document))
        archive.writestr("images/1/8.png", file.getvalue())


def test_every_object_has_a_mask_or_a_review_on_every_image(server, tmp_path):
    sequence = render(SCENES[0], seed=0, frames=4)
    (tmp_path / "frames").mkdir()
    for number, frame in enumerate(sequence.frames, 8):
        Image.fromarray(frame).save(tmp_path / "frames" / f"{number}.png")
    firsts = {name: masks[0] for name, masks in sequence.truth.items()}
    saved(tmp_path / "project.zip", sequence.frames[0], firsts)
    options = ("--from", "project.zip", "--out", "found", "--url", server.url)
    done = mobile_sam(tmp_path, "follow", "frames", *options)
    assert done.returncode == 0, done.stderr
    documents = [
        json.loads((tmp_path / "found" / f"{name}.json").read_text())
        for name in ("annotations", "review")
    ]
    names = [entry["file_name"] for entry in documents[0]["images"]]
    assert names == ["9.png", "10.png", "11.png"]
    entries = [entry for document in documents for entry in document["annotations"]]
    places = sorted((entry["image_id"], entry["track_id"]) for entry in entries)
    assert places == [(image, track) for image in (1, 2, 3) for track in (1, 2)]
    for entry in documents[0]["annotations"]:
        truth = sequence.truth[entry["name"]][entry["image_id"]]
        mask = coco.decode(entry["segmentation"]).astype(bool)
        assert (mask & truth).sum() / (mask | truth).sum() > 0.5
    assert documents[0]["annotations"]
