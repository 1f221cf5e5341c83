"""X-AnyLabeling's requests and answers, translated."""

import base64
import json
import re

import numpy as np
import pytest

from tests.unit.utils.integrations.replay import MASK, SQUARE, Replay, record
from utils.errors import InvalidRequest, Problem
from utils.integrations import service
from utils.integrations.x_anylabeling import (
    ADAPTER,
    PointMark,
    RectangleMark,
    error_response,
    prompts_of,
)

IMAGE = "data:image/jpeg;base64," + base64.b64encode(b"a photo").decode()
CLICK = {"type": "point", "data": [5, 6], "label": 1}
CORNER = np.zeros((30, 40), bool)
CORNER[:5, :10] = True


def box(*corners):
    return {"type": "rectangle", "data": corners, "label": 1}


@pytest.fixture
def replay() -> Replay:
    return Replay(ADAPTER)


def predict(replay: Replay, *marks, task: str | None = "polygon", **params) -> dict:
    params = {
        "conf_threshold": 0.0,
        "iou_threshold": 0.0,
        "epsilon_factor": 0.001,
        "marks": list(marks),
        **params,
    }
    if task:
        params["current_task"] = task
    answer = replay.post(
        "/v1/predict", json={"model": "mobile_sam", "image": IMAGE, "params": params}
    )
    assert answer.status_code == 200
    document: dict = answer.json()
    assert document["data"]["replace"] is False
    return document


def test_models_have_tasks_with_their_widgets(replay):
    models = replay.get("/v1/models").json()["data"]
    assert list(models) == ["mobile_sam"]
    info = models["mobile_sam"]
    names = {widget["name"] for widget in info["widgets"]}
    for task in info["available_tasks"]:
        assert set(task["active_widgets"]) <= names
    assert [task["batch_processing_mode"] for task in info["available_tasks"]] == [
        None,
        None,
        "default",
    ]
    assert replay.get("/v1/models/mobile_sam/info").json()["data"] == {
        "model_id": "mobile_sam",
        **info,
    }


@pytest.mark.parametrize(
    ("marks", "points", "labels"),
    [
        ([CLICK, {**CLICK, "label": 0}], [[[5, 6], [5, 6]]], [[1, 0]]),
        ([box(9, 8, 1, 2), CLICK], [[[5, 6], [1, 2], [9, 8]]], [[1, 2, 3]]),
        (
            [box(1, 2, 9, 8), box(10, 2, 20, 8)],
            [[[1, 2], [9, 8]], [[10, 2], [20, 8]]],
            [[2, 3], [2, 3]],
        ),
    ],
    ids=["negative", "rectangle from its lower right corner", "two rectangles are two objects"],
)
def test_marks_become_prompts(replay, marks, points, labels):
    predict(replay, *marks)
    assert replay.prompts() == (points, labels)
    assert [source.file for source in replay.sources] == [b"a photo"]


@pytest.mark.parametrize("task", ["polygon", None])
def test_polygon_is_closed_and_without_holes(replay, task):
    replay.masks = [{**MASK, "score": 1.02}]
    (shape,) = predict(replay, CLICK, task=task)["data"]["shapes"]
    assert shape == {
        "label": "AUTOLABEL_OBJECT",
        "shape_type": "polygon",
        "points": [*SQUARE, SQUARE[0]],
        "score": 1,
    }


def test_rectangle_has_four_corners(replay):
    replay.masks = [MASK, {**MASK, "area": 0}]
    (shape,) = predict(replay, CLICK, task="rectangle")["data"]["shapes"]
    assert (shape["shape_type"], shape["points"]) == ("rectangle", SQUARE)


def test_points_in_rectangles_are_counted_before_they_are_multiplied():
    point, box = (
        PointMark(type="point", data=(1, 2)),
        RectangleMark(type="rectangle", data=(1, 2, 3, 4)),
    )
    assert len(prompts_of([point] * 14 + [box] * 256)) == 256
    with pytest.raises(
        InvalidRequest,
        match=r"at most 4096 points .* got 15 points in each of 256 rectangles: 4352",
    ):
        prompts_of([point] * 15 + [box] * 256)


def test_small_islands_are_left_out(replay):
    island = [[20, 2], [30, 2], [30, 12], [20, 12]]
    replay.masks = [
        {**MASK, "polygon": [[SQUARE], [island], [[[1, 20], [4, 20], [4, 23], [1, 23]]]]}
    ]
    assert len(predict(replay, CLICK)["data"]["shapes"]) == 2


def test_fineness_is_a_fraction_of_the_length_of_the_outline(replay):
    # 100.5 long; the bump is 1 high.
    bump = [
        [0, 0],
        [10, 0],
        [12, 1],
        [14, 0],
        [24, 0],
        [24, 26],
        [0, 26],
    ]
    replay.masks = [{**MASK, "polygon": [[bump]]}]
    counts = [
        len(predict(replay, CLICK, epsilon_factor=f)["data"]["shapes"][0]["points"])
        for f in (0.0001, 0.011)
    ]
    assert counts == [8, 5]


@pytest.mark.parametrize(("task", "mask_format"), [("polygon", "polygon"), ("rectangle", "rle")])
def test_masks_that_are_too_long_to_be_parsed_are_refused(replay, monkeypatch, task, mask_format):
    monkeypatch.setattr(
        service, "MAX_POLYGON_BYTES" if task == "polygon" else "MAX_DOCUMENT_BYTES", 100
    )
    replay.masks = [MASK]
    assert (
        f"masks of at most 100 bytes as {mask_format}"
        in predict(replay, CLICK, task=task)["data"]["description"]
    )


def test_everything_ignores_marks_and_numbers_its_objects(replay):
    replay.next_batches = [[record(CORNER)]]
    (shape,) = predict(replay, CLICK, task="everything", conf_threshold=0.5)["data"]["shapes"]
    assert (shape["label"], shape["score"]) == ("object1", 0.9)
    assert sorted(shape["points"][:-1]) == [[0, 0], [0, 5], [10, 0], [10, 5]]
    assert replay.batches[0][1].options["pred_iou_thresh"] == 0.5
    assert sum(len(batch.inputs["point_coords"]) for _, batch in replay.batches) == 256


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b'{"model": "sam3", "image": ""}', "model: expected 'mobile_sam'"),
        (b'{"model": "mobile_sam", "image": ""}', "image: expected base64"),
        (
            (
                b'{"model": "mobile_sam", "image": "", "params": {"marks": [{"type": "point",'
                b' "data": [1]}]}}'
            ),
            r"marks\[0\]",
        ),
    ],
)
def test_errors_are_descriptions_and_keep_annotations(replay, body, sentence):
    answer = replay.post("/v1/predict", content=body)
    document = answer.json()
    description = document["data"].pop("description")
    assert (answer.status_code, document["success"]) == (200, False)
    assert document["data"] == {"shapes": [], "replace": False}
    assert re.search(sentence, description)
    assert document["error"]["message"] in description


def test_missing_key_is_explained_by_what_the_person_does_in_the_tool():
    answer = json.loads(bytes(error_response(Problem(401, "unauthorized", "", "a header")).body))
    assert "enter it in the dialog" in answer["data"]["description"]
