"""X-AnyLabeling's own client and its window against the service."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from pycocotools import mask as coco

from benchmarks.objects import iou
from tests.e2e.pictures import filled, scene
from tests.e2e.server import MAX_BODY_BYTES, Server
from tests.integrations.conftest import KEY, own_answer

pytestmark = pytest.mark.e2e

SCRIPTS = Path(__file__).parent / "x_anylabeling"
OFFSCREEN = {"QT_QPA_PLATFORM": "offscreen", "QT_LOGGING_RULES": "*=false"}
WINDOW_LIBRARIES = "libegl1 libgl1 libxkbcommon0 libdbus-1-3 libfontconfig1 libnss3 libasound2"
X, Y = 240, 160


@pytest.fixture(scope="session")
def python(tool_environment) -> Path:
    statement = "from anylabeling.services.auto_labeling.remote_server import RemoteServer"
    folder: Path = tool_environment("x-anylabeling", statement, debian=WINDOW_LIBRARIES, **OFFSCREEN)
    return folder / "python"


@pytest.fixture(scope="module")
def start(server, python, start_tool, tmp_path_factory) -> Callable[..., Callable[..., dict[str, Any]]]:
    """Return a function that starts the tool's client with a key, and returns its function that segments an image."""

    def start(key: str) -> Callable[..., dict[str, Any]]:
        tool = start_tool(python, SCRIPTS / "client.py", server.url, key, tmp_path_factory.mktemp("home"), **OFFSCREEN)
        assert tool.read()  # the models

        def predict(path: Path, *marks, task="polygon", fineness=0.001, conf=0.0) -> dict[str, Any]:
            answer: dict[str, Any] = tool.call(path=str(path), marks=marks, task=task, fineness=fineness, conf=conf)
            return answer

        return predict

    return start


@pytest.fixture(scope="module")
def predict(start) -> Callable[..., dict[str, Any]]:
    function: Callable[..., dict[str, Any]] = start(KEY)
    return function


@pytest.fixture(scope="module")
def photo(tmp_path_factory) -> Path:
    path: Path = tmp_path_factory.mktemp("photo") / "scene.png"
    path.write_bytes(scene(41))
    return path


def point(x: int, y: int, label: int = 1) -> dict[str, Any]:
    return {"type": "point", "data": [x, y], "label": label}


def rectangle(*corners: int) -> dict[str, Any]:
    return {"type": "rectangle", "data": corners, "label": 1}


def expected(server: Server, photo: Path, **fields) -> dict[str, Any]:
    """Return the only record of the service's own answer."""
    (record,) = own_answer(server, photo.read_bytes(), **fields)["masks"]
    document: dict[str, Any] = record
    return document


PROMPTS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "point": ([point(X, Y)], {"pos_coords": [[X, Y]]}),
    "negative": ([point(X, Y), point(10, 10, 0)], {"pos_coords": [[X, Y]], "neg_coords": [[10, 10]]}),
    "rectangle": ([rectangle(400, 280, 60, 40)], {"box": [60, 40, 400, 280]}),
}


@pytest.mark.parametrize("case", PROMPTS.values(), ids=PROMPTS)
def test_polygon_is_the_mask_of_the_service(predict, server, photo, case):
    marks, fields = case
    answer = predict(photo, *marks, fineness=0.0001)
    assert (answer["messages"], answer["description"], answer["replace"]) == ([], "", False)
    assert {(shape["label"], shape["type"], shape["closed"]) for shape in answer["shapes"]} == {
        ("AUTOLABEL_OBJECT", "polygon", True)
    }
    # The client's polygons have no holes, and are within half a pixel and 0.0001 of their length of the mask's edge.
    mask = coco.decode(expected(server, photo, min_mask_region_area=100_000, **fields)["rle"]).astype(bool)
    assert iou(filled([shape["points"] for shape in answer["shapes"]], mask.shape), mask) > 0.98


def test_rectangle_is_the_box_of_the_mask(predict, server, photo):
    (shape,) = predict(photo, point(X, Y), task="rectangle")["shapes"]
    left, top, right, bottom = expected(server, photo, pos_coords=[[X, Y]])["box"]
    assert shape["type"] == "rectangle"
    assert shape["points"] == [[left, top], [right, top], [right, bottom], [left, bottom]]


def test_later_clicks_use_the_embedding(predict, server, tmp_path):
    path = tmp_path / "new.png"
    path.write_bytes(scene(42))
    before = server.embeddings()
    predict(path, point(X, Y))
    predict(path, point(X, Y), point(30, 30))
    after = server.embeddings()
    assert (after["encoded"] - before["encoded"], after["found"] - before["found"]) == (1, 1)


def test_batches_segment_everything(predict, photo):
    assert predict(photo, point(X, Y))["batch"] is None
    answer = predict(photo, point(X, Y), task="everything", conf=0.5)
    assert answer["batch"] == "default"
    labels = [shape["label"] for shape in answer["shapes"]]
    assert labels == [f"object{number}" for number in range(1, len(labels) + 1)]
    assert len(labels) > 1


def test_errors_are_shown_and_keep_annotations(predict, start, photo, tmp_path):
    noise = tmp_path / "noise.png"
    noise.write_bytes(scene(43, (1000, 700)))
    assert noise.stat().st_size > MAX_BODY_BYTES
    bitmap = tmp_path / "scene.bmp"
    cv2.imwrite(str(bitmap), np.zeros((30, 40, 3), np.uint8))
    answers = {
        "needs an API key": start("wrong-key-of-24-letters-")(photo, point(X, Y)),
        "inside the image": predict(photo, point(5000, Y)),
        f"at most {MAX_BODY_BYTES} bytes": predict(noise, point(X, Y)),
        "PNG, JPEG or WebP": predict(bitmap, point(1, 1)),
    }
    for sentence, answer in answers.items():
        assert sentence in answer["description"]
        assert (answer["shapes"], answer["replace"], answer["messages"]) == ([], False, [])


@pytest.fixture
def look(server, python, photo, tmp_path):
    """Return a function that opens the window on an image with one annotation, clicks, and returns what is seen."""
    image = tmp_path / "scene.png"
    image.write_bytes(photo.read_bytes())
    shape = {"label": "disc", "shape_type": "polygon", "points": [[5, 5], [50, 5], [50, 50]], "flags": {}}
    annotation: dict[str, Any] = {
        "version": "4.2.1",
        "flags": {},
        "shapes": [shape],
        "imagePath": "scene.png",
        "imageData": None,
    }
    (tmp_path / "scene.json").write_text(json.dumps({**annotation, "imageHeight": 320, "imageWidth": 480}))

    def look(key: str) -> dict[str, Any]:
        (tmp_path / "home").mkdir()
        command = [python, SCRIPTS / "window.py", server.url, key, tmp_path / "home", image, f"{X},{Y}"]
        environment = {**os.environ, **OFFSCREEN, "HOME": str(tmp_path / "home")}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=200)
        assert ended.returncode == 0, ended.stderr[-3000:]
        seen: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
        return seen

    return look


def test_click_in_the_window_shows_a_polygon(look):
    seen = look(KEY)
    assert ["disc", "polygon"] in seen["shapes"]
    assert ["AUTOLABEL_OBJECT", "polygon"] in seen["shapes"]
    assert {"button_add_point", "button_add_rect", "mask_fineness_slider"} < set(seen["widgets"])
    assert "edit_conf" not in seen["widgets"]
    assert seen["replaces_without_an_answer"] is False


def test_wrong_key_is_shown_in_the_window(look):
    seen = look("wrong-key-of-24-letters-")
    assert seen["shapes"] == [["disc", "polygon"], ["AUTOLABEL_ADD", "point"]]
    assert "enter it in the dialog" in seen["description"]
