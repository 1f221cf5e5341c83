"""`POST /everything`: an image in, automatic masks out, at once or line by line."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from dataclasses import replace

import pytest

from utils.errors import InferenceUnavailable, Problem, RejectedByModel
from utils.images import ImageSource

IMAGE = base64.b64encode(b"an image file").decode()
RESULT = {
    "image_id": "the id",
    "width": 40,
    "height": 30,
    "weights": {"name": "none"},
    "model_version": 4,
    "masks": [
        {
            "area": side * side,
            "bbox": [0, 0, side, side],
            "predicted_iou": 0.9,
            "crop_box": [0, 0, 40, 30],
            "segmentation": {"size": [30, 40], "counts": "counts"},
        }
        for side in (1, 2, 3)
    ],
}


def ask(http, **fields):
    return http.post("/everything", json={"input_image": IMAGE, "points_per_side": 6, **fields})  # three batches


def lines(response):
    assert response.headers["content-type"] == "application/x-ndjson"
    assert response.text.endswith("\n")
    return [json.loads(line) for line in response.text.splitlines()]


def test_the_answer_is_one_json_document(http):
    response = ask(http)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json() == RESULT


def test_an_image_may_be_named_by_its_id(http, segmenter):
    assert ask(http, input_image=None, image_id="an id").status_code == 200
    assert segmenter.embeds == [ImageSource(None, "an id")]
    assert [image for image, _ in segmenter.batches] == [ImageSource(None, "the id")] * 3


def test_the_request_reaches_the_model(http, segmenter):
    ask(http, points_per_side=1, pred_iou_thresh=0.5, stability_score_offset=2.0, min_mask_region_area=7)
    ((_, batch),) = segmenter.batches
    assert batch.points_xy.tolist() == [[20, 15]]
    assert batch.pred_iou_thresh == 0.5
    assert batch.stability_score_thresh is None
    assert (batch.stability_score_offset, batch.min_mask_region_area) == (2.0, 7)


def test_progress_comes_line_by_line_and_the_result_in_the_last(http):
    response = ask(http, progress=True)
    assert response.status_code == 200
    assert lines(response) == [
        {"done": 0, "total": 3},
        {"done": 1, "total": 3},
        {"done": 2, "total": 3},
        {"done": 3, "total": 3, "result": RESULT},
    ]


@pytest.mark.parametrize("progress", [False, True], ids=["at once", "line by line"])
def test_an_error_before_the_first_line_has_its_status(http, segmenter, progress):
    segmenter.error = RejectedByModel(Problem(404, "image-not-cached", "a title", "a detail"))
    response = ask(http, progress=progress)
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["type"] == "urn:mobile-sam:image-not-cached"


@pytest.mark.parametrize(
    ("error", "status", "slug"),
    [
        pytest.param(InferenceUnavailable("starting"), 503, "inference-unavailable", id="unavailable"),
        pytest.param(
            RejectedByModel(Problem(422, "image-damaged", "a title", "a detail")), 422, "image-damaged", id="rejected"
        ),
        pytest.param(RuntimeError("a bug with a /secret/path"), 500, "internal-error", id="a bug"),
    ],
)
def test_an_error_after_the_first_line_is_the_last_line(http, segmenter, caplog, *, error, status, slug):
    segmenter.errors_of_batches = [None, error]
    with caplog.at_level(logging.INFO, "bentoml.mobile_sam"):
        response = ask(http, progress=True)
    assert response.status_code == 200
    *before, last = lines(response)
    assert before == [{"done": 0, "total": 3}, {"done": 1, "total": 3}]
    assert list(last) == ["problem"]
    assert last["problem"]["status"] == status
    assert last["problem"]["type"] == f"urn:mobile-sam:{slug}"
    assert "secret" not in response.text
    assert len([record for record in caplog.records if record.name == "bentoml.mobile_sam"]) == 1


def test_without_progress_an_error_of_a_batch_has_its_status(http, segmenter):
    segmenter.errors_of_batches = [None, InferenceUnavailable("starting")]
    assert ask(http).status_code == 503


def test_an_image_forgotten_in_between_is_no_error(http, segmenter):
    segmenter.errors_of_batches = [None, RejectedByModel(Problem(404, "image-not-cached", "a title", "a detail"))]
    assert ask(http).status_code == 200
    assert [image.file for image, _ in segmenter.batches] == [None, None, b"an image file", None]


def test_work_that_takes_too_long_is_a_504_with_advice(http, service, segmenter, monkeypatch):
    async def never(image, batch):
        await asyncio.Event().wait()

    monkeypatch.setattr(segmenter, "records", never)
    monkeypatch.setattr(service, "settings", replace(service.settings, inference_timeout=0.05))
    response = ask(http)
    assert response.status_code == 504
    assert "set progress to true" in response.json()["detail"]
