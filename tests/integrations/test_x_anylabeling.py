"""X-AnyLabeling's own client and its window against the service."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pycocotools import mask as coco

from benchmarks.objects import iou
from harness import Server
from tests.e2e.pictures import filled, scene
from tests.integrations.conftest import KEY, own_answer
from tests.services import MAX_BODY_BYTES

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SCRIPTS = Path(__file__).parent / "x_anylabeling"
OFFSCREEN = {"QT_QPA_PLATFORM": "offscreen", "QT_LOGGING_RULES": "*=false"}
WINDOW_LIBRARIES = "libegl1 libgl1 libxkbcommon0 libdbus-1-3 libfontconfig1 libnss3 libasound2"
X, Y = 240, 160


@pytest.fixture(scope="session")
def python(tool_environment) -> Path:
    statement = "from anylabeling.services.auto_labeling.remote_server import RemoteServer"
    folder: Path = tool_environment(
        "x-anylabeling", statement, debian=WINDOW_LIBRARIES, **OFFSCREEN
    )
    return folder / "python"


@pytest.fixture(scope="module")
def predict(server, python, start_tool, tmp_path_factory) -> Callable[..., dict[str, Any]]:
    """Return a function of the tool's client that segments an image."""
    tool = start_tool(
        python, SCRIPTS / "client.py", server.url, KEY, tmp_path_factory.mktemp("home"), **OFFSCREEN
    )
    assert tool.read()  # the models

    def predict(path: Path, *marks, task="polygon", fineness=0.001, conf=0.0) -> dict[str, Any]:
        answer: dict[str, Any] = tool.call(
            path=str(path), marks=marks, task=task, fineness=fineness, conf=conf
        )
        return answer

    return predict


@pytest.fixture(scope="module")
def photo(tmp_path_factory) -> Path:
    path: Path = tmp_path_factory.mktemp("photo") / "scene.png"
    path.write_bytes(scene(41))
    return path


def point(x: int, y: int, label: int = 1) -> dict[str, Any]:
    return {"type": "point", "data": [x, y], "label": label}


def expected(server: Server, photo: Path, **fields) -> dict[str, Any]:
    """Return the only record of the service's own answer."""
    (record,) = own_answer(server, photo.read_bytes(), **fields)["masks"]
    document: dict[str, Any] = record
    return document


def test_polygon_is_the_mask_of_the_service(predict, server, photo):
    answer = predict(photo, point(X, Y), point(10, 10, 0), fineness=0.0001)
    fields = {"pos_coords": [[X, Y]], "neg_coords": [[10, 10]]}
    assert (answer["messages"], answer["description"], answer["replace"]) == ([], "", False)
    assert {(shape["label"], shape["type"], shape["closed"]) for shape in answer["shapes"]} == {
        ("AUTOLABEL_OBJECT", "polygon", True)
    }
    # The client's polygons have no holes, and are within half a pixel and 0.0001 of their length of
    # the mask's edge.
    mask = coco.decode(
        expected(server, photo, min_mask_region_area=100_000, **fields)["rle"]
    ).astype(bool)
    assert iou(filled([shape["points"] for shape in answer["shapes"]], mask.shape), mask) > 0.98


def test_batches_segment_everything(predict, photo):
    assert predict(photo, point(X, Y))["batch"] is None
    answer = predict(photo, point(X, Y), task="everything", conf=0.5)
    assert answer["batch"] == "default"
    labels = [shape["label"] for shape in answer["shapes"]]
    assert labels == [f"object{number}" for number in range(1, len(labels) + 1)]
    assert len(labels) > 1


def test_errors_are_shown_and_keep_annotations(predict, photo, tmp_path):
    noise = tmp_path / "noise.png"
    noise.write_bytes(scene(43, (1000, 700)))
    assert noise.stat().st_size > MAX_BODY_BYTES
    answers = {
        "inside the image": predict(photo, point(5000, Y)),
        f"at most {MAX_BODY_BYTES} bytes": predict(noise, point(X, Y)),
    }
    for sentence, answer in answers.items():
        assert sentence in answer["description"]
        assert (answer["shapes"], answer["replace"], answer["messages"]) == ([], False, [])


def test_click_in_the_window_shows_a_polygon(server, python, photo, tmp_path):
    image, home = tmp_path / "scene.png", tmp_path / "home"
    image.write_bytes(photo.read_bytes())
    home.mkdir()
    shape = {
        "label": "disc",
        "shape_type": "polygon",
        "points": [[5, 5], [50, 5], [50, 50]],
        "flags": {},
    }
    annotation: dict[str, Any] = {
        "version": "4.2.1",
        "flags": {},
        "shapes": [shape],
        "imagePath": "scene.png",
        "imageData": None,
    }
    (tmp_path / "scene.json").write_text(
        json.dumps({**annotation, "imageHeight": 320, "imageWidth": 480})
    )
    command = [python, SCRIPTS / "window.py", server.url, KEY, home, image, f"{X},{Y}"]
    environment = {**os.environ, **OFFSCREEN, "HOME": str(home)}
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=200
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    seen: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    assert ["disc", "polygon"] in seen["shapes"]
    assert ["AUTOLABEL_OBJECT", "polygon"] in seen["shapes"]
    assert {"button_add_point", "button_add_rect", "mask_fineness_slider"} < set(seen["widgets"])
    assert "edit_conf" not in seen["widgets"]
    assert seen["replaces_without_an_answer"] is False
