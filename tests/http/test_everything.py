"""`POST /everything`, with one JSON document or JSON lines as the answer."""

import asyncio
import base64
import json
import logging
import time

import pytest

from tests import fake_segmenter
from tests.fake_segmenter import EVERYTHING_ENGINE, record
from utils.errors import ImageNotCached, InferenceTimeout
from utils.inference.everything import INTERNAL_KEYS

IMAGE = base64.b64encode(b"an image file").decode()
BATCHES = [[record((10 * number, 0, 10 * number + 5, 5))] for number in range(3)]
MASKS = [
    {name: value for name, value in found.items() if name not in INTERNAL_KEYS}
    for (found,) in BATCHES
]
RESULT = {**fake_segmenter.IMAGE, "engine": EVERYTHING_ENGINE, "masks": MASKS}


@pytest.fixture(autouse=True)
def _batches(segmenter):
    segmenter.next_batches = [*BATCHES]


def post_everything(http, **fields):
    # Three batches.
    return http.post("/everything", json={"input_image": IMAGE, "points_per_side": 6, **fields})


def lines(response):
    assert response.headers["content-type"] == "application/x-ndjson"
    assert response.text.endswith("\n")
    return [json.loads(line) for line in response.text.splitlines()]


def test_answer_is_one_json_document(http):
    response = post_everything(http)
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    assert response.json() == RESULT


def test_progress_is_streamed_with_the_result_in_the_last_line(http):
    response = post_everything(http, progress=True)
    # As nginx reads it.
    assert (response.status_code, response.headers["x-accel-buffering"]) == (
        200,
        "no",
    )
    assert lines(response) == [
        {"done": 0, "total": 3},
        {"done": 1, "total": 3},
        {"done": 2, "total": 3},
        {"done": 3, "total": 3, "result": RESULT},
    ]


def test_error_before_the_first_line_has_its_status(http, segmenter):
    segmenter.error = ImageNotCached("an id")
    response = post_everything(http, progress=True)
    assert (response.status_code, response.json()["type"]) == (
        404,
        "urn:mobile-sam:image-not-cached",
    )


@pytest.mark.parametrize(
    ("error", "status", "slug"),
    [
        (InferenceTimeout("late"), 504, "inference-timeout"),
        (RuntimeError("a /secret/path"), 500, "internal-error"),
    ],
)
def test_error_after_the_first_line_is_the_last_line(
    http, segmenter, caplog, *, error, status, slug
):
    segmenter.next_batches = [[], error]
    with caplog.at_level(logging.INFO, "bentoml.mobile_sam"):
        response = post_everything(http, progress=True)
    *before, last = lines(response)
    assert before == [{"done": 0, "total": 3}, {"done": 1, "total": 3}]
    assert list(last) == ["problem"]
    assert (last["problem"]["status"], last["problem"]["type"]) == (
        status,
        f"urn:mobile-sam:{slug}",
    )
    assert "secret" not in response.text
    assert len([record for record in caplog.records if record.name == "bentoml.mobile_sam"]) == 1


@pytest.mark.parametrize("progress", [True, False])
def test_request_that_a_stopping_service_would_not_finish_ends_with_the_problem(
    http, service, monkeypatch, progress
):
    monkeypatch.setattr(service.app, "time_left_s", lambda: -1.0)
    response = post_everything(http, progress=progress)
    if progress:
        assert response.status_code == 200
        first, last = lines(response)
        assert first == {"done": 0, "total": 3}
        problem = last["problem"]
    else:
        assert response.status_code == 503
        problem = response.json()
    assert problem["type"] == "urn:mobile-sam:stopping"


def test_timeout_is_a_504_with_advice(http, service, segmenter, monkeypatch):
    ended = []

    async def never(image, batch):
        # The limit passes while the batch runs, and not before.
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "time", lambda: time.monotonic() + 40)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    monkeypatch.setattr(segmenter, "records", never)
    monkeypatch.setattr(service.app, "timeout_s", lambda: 30)
    response = post_everything(http)
    assert response.status_code == 504
    assert "no response within 30 s: set progress to true" in response.json()["detail"]
    assert ended
