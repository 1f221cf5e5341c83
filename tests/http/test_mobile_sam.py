"""`POST /mobile_sam`: what goes in reaches the model, what the model says comes out."""

from __future__ import annotations

import base64
import json

import pytest
from requests_toolbelt.multipart.decoder import MultipartDecoder

from utils.errors import InferenceFailed, InferenceUnavailable, Problem, RejectedByModel

IMAGE = base64.b64encode(b"an image file").decode()


def ask(http, **fields):
    return http.post("/mobile_sam", json={"input_image": IMAGE, "pos_coords": [[1, 2]], **fields})


def parts(response):
    return MultipartDecoder(response.content, response.headers["content-type"]).parts


def test_the_request_reaches_the_model(http, segmenter):
    ask(
        http,
        neg_coords=[[3, 4]],
        box=[0, 0, 9, 9],
        multimask_output=True,
        mask_format="npy",
        segmented_image="cutout",
    )
    (job,) = segmenter.jobs
    assert job.image == b"an image file"
    assert job.prompt.points_xy.tolist() == [[1, 2], [3, 4], [0, 0], [9, 9]]
    assert job.prompt.labels.tolist() == [1, 0, 2, 3]
    assert (job.multimask_output, job.mask_format, job.picture_style) == (True, "npy", "cutout")


def test_the_answer_has_mask_picture_and_result_in_this_order(http):
    response = ask(http)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("multipart/form-data; boundary=")
    assert [part.content for part in parts(response)] == [b"the mask", b"the picture", b'{"masks": []}']
    names = [part.headers[b"Content-Disposition"].decode().split(";")[1].strip() for part in parts(response)]
    assert names == ['name="mask"', 'name="segmented_image"', 'name="result"']


def test_no_picture_was_asked_for_and_none_comes(http):
    assert [part.content for part in parts(ask(http, segmented_image="none"))] == [b"the mask", b'{"masks": []}']


@pytest.mark.parametrize(
    ("mask_format", "content_type"),
    [("json", b"application/json"), ("npy", b"application/octet-stream"), ("png", b"image/png")],
)
def test_parts_say_what_they_are(http, mask_format, content_type):
    mask, picture, result = parts(ask(http, mask_format=mask_format))
    assert mask.headers[b"Content-Type"] == content_type
    assert picture.headers[b"Content-Type"] == b"image/png"
    assert result.headers[b"Content-Type"] == b"application/json"


def test_a_binary_mask_survives_whatever_bytes_it_has(http, segmenter, monkeypatch):
    from utils.segmenter import Segmentation

    awkward = b"\r\n--boundary\r\n\r\n--\x00\xff" * 3 + b"\r\n"

    async def answer(job):
        return Segmentation(awkward, awkward, b"{}")

    monkeypatch.setattr(segmenter, "segment", answer)
    assert [part.content for part in parts(ask(http))] == [awkward, awkward, b"{}"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InferenceUnavailable("starting"), 503),
        (InferenceFailed("failed"), 500),
        (RejectedByModel(Problem(415, "unsupported-image-format", "t", "d")), 415),
        (RuntimeError("a bug with a /secret/path"), 500),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_the_model_raises_becomes_a_problem(http, segmenter, error, status):
    segmenter.error = error
    response = ask(http)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["status"] == status
    assert "secret" not in response.text


def test_a_caller_is_told_to_come_back(http, segmenter):
    segmenter.error = InferenceUnavailable("starting")
    assert ask(http).headers["retry-after"] == "5"


def test_the_documented_example_is_answered(http):
    example = http.get("/docs.json").json()["paths"]["/mobile_sam"]["post"]["requestBody"]
    response = http.post("/mobile_sam", json=example["content"]["application/json"]["example"])
    assert response.status_code == 200


@pytest.mark.parametrize("content_type", [None, "application/json", "application/json; charset=utf-8", "x/y+json"])
def test_json_is_taken_under_its_names(http, content_type):
    body = json.dumps({"input_image": IMAGE, "pos_coords": [[1, 2]]}).encode()
    headers = {"content-type": content_type} if content_type else {}
    assert http.post("/mobile_sam", content=body, headers=headers).status_code == 200
