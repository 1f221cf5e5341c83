"""`POST /everything`, with one JSON document or JSON lines as the answer."""

import asyncio
import base64
import json
import logging
from dataclasses import replace

import pytest

from utils.api.errors import ImageNotCached, InferenceUnavailable, Problem, RejectedByModel

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


def post_everything(http, **fields):
    return http.post("/everything", json={"input_image": IMAGE, "points_per_side": 6, **fields})  # three batches


def lines(response):
    assert response.headers["content-type"] == "application/x-ndjson"
    assert response.text.endswith("\n")
    return [json.loads(line) for line in response.text.splitlines()]


def test_answer_is_one_json_document(http):
    response = post_everything(http)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json() == RESULT


def test_progress_is_streamed_with_the_result_in_the_last_line(http):
    response = post_everything(http, progress=True)
    assert response.status_code == 200
    assert lines(response) == [
        {"done": 0, "total": 3},
        {"done": 1, "total": 3},
        {"done": 2, "total": 3},
        {"done": 3, "total": 3, "result": RESULT},
    ]


@pytest.mark.parametrize("progress", [False, True], ids=["document", "lines"])
def test_error_before_the_first_line_has_its_status(http, segmenter, progress):
    segmenter.error = ImageNotCached.of("an id")
    response = post_everything(http, progress=progress)
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
        pytest.param(RuntimeError("a bug with a /secret/path"), 500, "internal-error", id="bug"),
    ],
)
def test_error_after_the_first_line_is_the_last_line(http, segmenter, caplog, *, error, status, slug):
    segmenter.batch_errors = [None, error]
    with caplog.at_level(logging.INFO, "bentoml.mobile_sam"):
        response = post_everything(http, progress=True)
    assert response.status_code == 200
    *before, last = lines(response)
    assert before == [{"done": 0, "total": 3}, {"done": 1, "total": 3}]
    assert list(last) == ["problem"]
    assert last["problem"]["status"] == status
    assert last["problem"]["type"] == f"urn:mobile-sam:{slug}"
    assert "secret" not in response.text
    assert len([record for record in caplog.records if record.name == "bentoml.mobile_sam"]) == 1


def test_timeout_is_a_504_with_advice(http, service, segmenter, monkeypatch):
    async def never(image, batch):
        await asyncio.Event().wait()

    monkeypatch.setattr(segmenter, "records", never)
    monkeypatch.setattr(service.app, "settings", replace(service.app.settings, inference_timeout=0.05))
    response = post_everything(http)
    assert response.status_code == 504
    assert "set progress to true" in response.json()["detail"]
