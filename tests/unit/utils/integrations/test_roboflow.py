"""Requests and answers of Roboflow's server, translated."""

import base64
import io

import numpy as np
import pytest

from orchestrator.masks import rle
from tests.unit.utils.integrations.replay import Replay
from utils.integrations.roboflow import ADAPTER

IMAGE = {"type": "base64", "value": base64.b64encode(b"a photo").decode()}
PIXELS = np.zeros((30, 40), bool)
PIXELS[5:10, 8:20] = 1
PIXELS[6:8, 10:12] = 0
PIXELS[20, 30] = 1
POINT = {"x": 9, "y": 6, "positive": True}
OUTLINES = [[[30, 20]], [[8, 5], [8, 9], [19, 9], [19, 5]]]


def npy(array: np.ndarray) -> str:
    file = io.BytesIO()
    np.save(file, array)
    return base64.b64encode(file.getvalue()).decode()


def record(number: int, score: float, pixels: np.ndarray = PIXELS) -> dict:
    logits = np.full((256, 256), -4, np.float32)
    logits[10:20, 30:50] = 4
    box = [8, 5, 31, 21] if pixels.any() else [0, 0, 0, 0]
    return {
        "object": number,
        "score": score,
        "box": box,
        "rle": rle(pixels),
        "low_res_mask": npy(logits),
    }


@pytest.fixture
def replay() -> Replay:
    fake = Replay(ADAPTER)
    fake.masks = [record(0, 0.9)]
    return fake


def segment(replay: Replay, path: str = "/sam2/segment_image", status: int = 200, **fields):
    answer = replay.post(path, json={"api_key": None, "image": IMAGE, **fields})
    assert answer.status_code == status, answer.text
    return answer


@pytest.mark.parametrize(
    "prompts",
    [{"prompts": [{"points": [POINT]}]}, [{"points": [POINT]}], {"points": [POINT]}],
    ids=["nested", "list", "single"],
)
def test_prompts_are_read_in_all_forms(replay, prompts):
    segment(replay, prompts=prompts, sam2_version_id="hiera_large", save_logits_to_cache=True)
    ((_, request),) = replay.jobs
    assert request.inputs["point_coords"].tolist() == [[[9, 6]]]
    assert request.options["multimask_output"]
    assert [source.file for source in replay.sources] == [b"a photo"]


def test_box_is_given_by_its_centre(replay):
    box = {"x": 20, "y": 10, "width": 8, "height": 6}
    segment(
        replay,
        prompts=[{"box": box, "points": [{**POINT, "positive": False}]}],
        multimask_output=False,
    )
    assert replay.prompts() == ([[[9, 6], [16, 7], [24, 13]]], [[0, 2, 3]])
    assert not replay.jobs[0][1].options["multimask_output"]


def test_answer_has_the_best_mask_of_each_prompt(replay):
    replay.masks = [record(0, 0.5), record(0, 0.8), record(1, 0.7), record(1, 0.6)]
    answer = segment(
        replay, prompts=[{"points": [POINT]}, {"points": [POINT]}], format="rle"
    ).json()
    assert [prediction["confidence"] for prediction in answer["predictions"]] == [0.8, 0.7]
    assert answer["predictions"][0] == {"masks": rle(PIXELS), "confidence": 0.8, "format": "rle"}
    assert (answer["image_id"], answer["model_id"], answer["weights"]) == (
        "id",
        "mobile_sam",
        {"name": "official"},
    )


def test_polygons_are_the_outlines_of_all_islands_and_empty_without_any(replay):
    replay.masks = [record(0, 0.9), record(1, 0.8, np.zeros_like(PIXELS))]
    predictions = segment(replay, prompts=[{"points": [POINT]}] * 2).json()["predictions"]
    assert predictions[0] == {"masks": OUTLINES, "confidence": 0.9, "format": "polygon"}
    assert predictions[1]["masks"] == [[]]


def test_embedding_is_known_by_the_id_of_the_service(replay):
    answer = segment(replay, "/sam2/embed_image", image_id="mine").json()
    assert (answer["image_id"], answer["model_id"]) == ("id", "mobile_sam")
    assert segment(replay, "/sam/embed_image").json()["embeddings"] == "id"
    segment(
        replay,
        "/sam/segment_image",
        image=None,
        embeddings="id",
        point_coords=[[1, 2]],
        point_labels=[1],
    )
    assert (replay.sources[-1].file, replay.sources[-1].image_id) == (None, "id")


def test_sam_1_has_one_outline_of_the_mask_and_of_the_logits(replay):
    points = [[1, 2], [3, 4], [0, 0]]
    answer = segment(
        replay, "/sam/segment_image", point_coords=points, point_labels=[1, 0, -1]
    ).json()
    assert replay.prompts() == ([[[1, 2], [3, 4]]], [[1, 0]])
    assert answer["masks"] == [OUTLINES[1]]
    assert answer["low_res_masks"] == [[[30, 10], [30, 19], [49, 19], [49, 10]]]


SAM2, SAM = "/sam2/segment_image", "/sam/segment_image"


@pytest.mark.parametrize(
    ("path", "fields", "text"),
    [
        (
            SAM2,
            {"image": {"type": "url", "value": "http://a.example/b.png"}},
            "image.type: expected base64",
        ),
        (SAM2, {"image": [IMAGE, IMAGE]}, "expected one image per request"),
        (
            SAM2,
            {"image": None, "prompts": [{"points": [POINT]}]},
            "or the image_id that embed_image",
        ),
        (SAM2, {"prompts": [{}]}, "or a box, got no prompt"),
        (SAM, {"point_coords": [[0, 0]]}, "point_labels: expected 1 labels"),
        (SAM2, {"format": "binary"}, "expected json or rle without prompts"),
        (SAM, {"embeddings": [[[[0.5]]]]}, "embeddings stay in the service"),
        (SAM, {"has_mask_input": True, "mask_input": [[[1, 2]]]}, "mask_input: expected base64"),
    ],
)
def test_wrong_input_has_a_message(replay, path, fields, text):
    answer = segment(replay, path, 422, **fields)
    assert answer.headers["content-type"] == "application/json"
    assert text in answer.json()["message"]
