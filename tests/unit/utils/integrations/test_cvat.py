"""Requests and answers of CVAT's server, translated."""

import base64
import json

import numpy as np
import pytest

from orchestrator.masks import rle
from tests.unit.utils.integrations.replay import Replay, record
from utils.integrations.cvat import ADAPTER, DETECTOR, FUNCTIONS, IN_BROWSER, INTERACTOR
from utils.settings import Settings

IMAGE = base64.b64encode(b"a photo").decode()
PIXELS = np.zeros((30, 40), bool)
PIXELS[5:7, 8:11] = [[1, 1, 0], [0, 1, 1]]


@pytest.fixture
def replay() -> Replay:
    fake = Replay(ADAPTER)
    fake.masks = [{"object": 0, "score": 0.9, "box": [8, 5, 11, 7], "rle": rle(PIXELS)}]
    fake.next_batches = [[record(PIXELS)]]
    return fake


def invoke(replay: Replay, name: str = INTERACTOR, status: int = 200, **payload):
    headers = {"x-nuclio-function-name": name, "x-nuclio-path": "/"}
    answer = replay.post(
        "/api/function_invocations", headers=headers, json={"image": IMAGE, **payload}
    )
    assert answer.status_code == status, answer.text
    return answer.json()


def test_functions_are_described_alone_and_together(replay):
    listed = replay.get("/api/functions").json()
    assert set(listed) == {INTERACTOR, DETECTOR}
    for name, function in listed.items():
        assert replay.get(f"/api/functions/{name}").json() == function
        assert function["metadata"]["name"] == name
        json.loads(function["metadata"]["annotations"]["spec"] or "[]")
    refused = replay.get(f"/api/functions/{IN_BROWSER}")
    assert (
        refused.status_code,
        "expected the function mobile-sam or" in refused.json()["detail"],
    ) == (404, True)


def test_function_that_the_browser_decodes_answers_a_float32_embedding():
    replay = Replay(ADAPTER, Settings(cvat_in_browser=True))
    assert set(replay.get("/api/functions").json()) == set(FUNCTIONS)
    assert replay.get(f"/api/functions/{IN_BROWSER}").json() == FUNCTIONS[IN_BROWSER]
    answer = invoke(replay, IN_BROWSER, pos_points=[[1, 2]], neg_points=[], obj_bbox=[])
    blob = np.frombuffer(base64.b64decode(answer["blob"]), "<f4").reshape(1, 256, 64, 64)
    assert np.array_equal(
        blob, replay.embedding["image_embeddings"].transpose(0, 3, 1, 2).astype(np.float32)
    )
    replay.embedding = {"image_embeddings": np.zeros((1, 32, 32, 8), np.float16)}
    assert "weights with the embedding" in invoke(replay, IN_BROWSER, status=422)["detail"]


def test_prompts_become_points_and_a_box(replay):
    invoke(
        replay,
        pos_points=[[1, 2]],
        neg_points=[[3, 4]],
        obj_bbox=[[20, 6], [10, 16]],
        text_prompts=["cat"],
    )
    assert replay.prompts() == ([[[1, 2], [3, 4], [10, 6], [20, 16]]], [[1, 0, 2, 3]])
    assert [source.file for source in replay.sources] == [b"a photo"]


def test_answer_of_a_click_is_for_older_and_newer_servers(replay):
    assert invoke(replay, pos_points=[[9, 6]], neg_points=[], obj_bbox=[]) == {
        "mask": [[255, 255, 0], [0, 255, 255]],
        "bounds": [8, 5, 10, 6],
        "shapes": [{"type": "mask", "points": [0, 2, 2, 2, 8, 5, 10, 6], "attributes": []}],
    }


def test_empty_mask_is_no_shape(replay):
    replay.masks[0] |= {"box": [0, 0, 0, 0], "rle": rle(np.zeros_like(PIXELS))}
    assert invoke(replay, pos_points=[[9, 6]]) == {
        "mask": [[0]],
        "bounds": [0, 0, 0, 0],
        "shapes": [],
    }


def test_detector_has_masks_and_outlines(replay):
    assert invoke(replay, DETECTOR, threshold=0.7) == [
        {
            "label": "object",
            "type": "mask",
            "confidence": 0.9,
            "mask": [1, 1, 0, 0, 1, 1, 8, 5, 10, 6],
            "points": [8, 5, 9, 6, 10, 6, 9, 5],
            "attributes": [],
        }
    ]
    assert replay.batches[0][1].options["pred_iou_thresh"] == 0.7


@pytest.mark.parametrize(
    ("name", "status", "payload", "text"),
    [
        (
            "pth-facebookresearch-sam-vit-h",
            404,
            {},
            "expected the function mobile-sam or mobile-sam-everything, got",
        ),
        (
            INTERACTOR,
            422,
            {"pos_points": [], "neg_points": [], "obj_bbox": []},
            "or a box, got no prompt",
        ),
        (INTERACTOR, 422, {"obj_bbox": [[1, 2]]}, "obj_bbox: expected two corners of one box"),
        (INTERACTOR, 422, {"image": "?", "pos_points": [[1, 2]]}, "image: expected base64"),
        (DETECTOR, 422, {"threshold": 7}, "threshold: expected"),
    ],
)
def test_wrong_input_is_explained(replay, name, status, payload, text):
    assert text in invoke(replay, name, status, **payload)["detail"]
