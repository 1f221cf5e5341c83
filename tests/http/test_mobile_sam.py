"""`POST /mobile_sam`: passing of requests and results between HTTP and the segmenter."""

from __future__ import annotations

import base64
import io
import json

import numpy as np
import pytest
from requests_toolbelt.multipart.decoder import MultipartDecoder

from utils.api.errors import (
    ImageNotCached,
    InferenceFailed,
    InferenceTimeout,
    InferenceUnavailable,
    Overloaded,
    Problem,
    RejectedByModel,
    ServiceError,
)
from utils.api.images import ImageSource
from utils.triton.segmenter import Segmentation, job_options

IMAGE = base64.b64encode(b"an image file").decode()


def segment(http, **fields):
    return http.post("/mobile_sam", json={"input_image": IMAGE, "pos_coords": [[1, 2]], **fields})


def parts(response):
    return MultipartDecoder(response.content, response.headers["content-type"]).parts


def test_request_reaches_the_segmenter(http, segmenter):
    options = {
        "multimask_output": True,
        "mask_format": "npy",
        "segmented_image": "cutout",
        "low_res_mask": True,
        "min_mask_region_area": 9,
        "mask_threshold": 0.5,
        "polygon_tolerance": 2.0,
    }
    segment(http, neg_coords=[[3, 4]], box=[0, 0, 9, 9], model_version=7, **options)
    ((image, job),) = segmenter.jobs
    assert image == ImageSource(b"an image file", None)
    assert job.prompts.points_xy.tolist() == [[[1, 2], [3, 4], [0, 0], [9, 9]]]
    assert job.prompts.labels.tolist() == [[1, 0, 2, 3]]
    assert job_options(job) == {**options, "document": False}
    assert job.model_version == 7


def test_image_can_be_given_by_its_id(http, segmenter):
    response = segment(http, input_image=None, image_id="an id")
    assert response.status_code == 200
    ((image, _),) = segmenter.jobs
    assert image == ImageSource(None, "an id")


def test_several_objects_reach_the_segmenter_with_their_masks(http, segmenter):
    file = io.BytesIO()
    np.save(file, np.full((256, 256), 7, np.float32))
    second = {"pos_coords": [[3, 4]], "mask_input": base64.b64encode(file.getvalue()).decode()}
    response = segment(http, pos_coords=None, prompts=[{"box": [0, 0, 9, 9]}, second])
    assert response.status_code == 200
    ((_, job),) = segmenter.jobs
    assert job.prompts.labels.tolist() == [[2, 3], [1, -2]]
    assert job.prompts.mask_objects.tolist() == [1]
    assert (job.prompts.masks == 7).all()


def test_answer_has_mask_picture_and_result_in_this_order(http):
    response = segment(http)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("multipart/form-data; boundary=")
    assert [part.content for part in parts(response)] == [b"the mask", b"the picture", b'{"masks": []}']
    names = [part.headers[b"Content-Disposition"].decode().split(";")[1].strip() for part in parts(response)]
    assert names == ['name="mask"', 'name="segmented_image"', 'name="result"']


def test_answer_has_no_picture_if_none_is_requested(http):
    assert [part.content for part in parts(segment(http, segmented_image="none"))] == [b"the mask", b'{"masks": []}']


@pytest.mark.parametrize(
    ("mask_format", "content_type"),
    [
        ("json", b"application/json"),
        ("npy", b"application/octet-stream"),
        ("png", b"image/png"),
        ("rle", b"application/json"),
        ("polygon", b"application/json"),
    ],
)
def test_parts_have_their_content_types(http, mask_format, content_type):
    mask, picture, result = parts(segment(http, mask_format=mask_format))
    assert mask.headers[b"Content-Type"] == content_type
    assert picture.headers[b"Content-Type"] == b"image/png"
    assert result.headers[b"Content-Type"] == b"application/json"


def test_binary_mask_is_passed_unchanged(http, segmenter, monkeypatch):
    awkward = b"\r\n--boundary\r\n\r\n--\x00\xff" * 3 + b"\r\n"

    async def answer(image, job):
        return Segmentation(awkward, awkward, b"{}")

    monkeypatch.setattr(segmenter, "segment", answer)
    assert [part.content for part in parts(segment(http))] == [awkward, awkward, b"{}"]


BODIES = {
    "/mobile_sam": {"input_image": IMAGE, "pos_coords": [[1, 2]]},
    "/embed": {"input_image": IMAGE},
    "/everything": {"input_image": IMAGE},
}
each_endpoint = pytest.mark.parametrize("path", BODIES)


@each_endpoint
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InferenceUnavailable("starting"), 503),
        (InferenceTimeout("too long"), 504),
        (InferenceFailed("failed"), 500),
        (RejectedByModel(Problem(415, "unsupported-image-format", "t", "d")), 415),
        (ImageNotCached.of("an id"), 404),
        (RuntimeError("a bug with a /secret/path"), 500),
    ],
    ids=lambda value: type(value).__name__,
)
def test_segmenter_errors_become_problems(http, segmenter, path, error, status):
    segmenter.error = error
    response = http.post(path, json=BODIES[path])
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == status
    if isinstance(error, ServiceError):
        assert problem["type"] == f"urn:mobile-sam:{error.problem().slug}"
    assert "secret" not in response.text


@each_endpoint
def test_unavailable_answer_has_retry_after(http, segmenter, path):
    segmenter.error = InferenceUnavailable("starting")
    assert http.post(path, json=BODIES[path]).headers["retry-after"] == "5"


@each_endpoint
def test_documented_examples_succeed(http, path):
    body = http.get("/docs.json").json()["paths"][path]["post"]["requestBody"]
    examples = body["content"]["application/json"]["examples"]
    assert examples
    for example in examples.values():
        assert http.post(path, json=example["value"]).status_code == 200


def test_documented_post_paths_are_complete(http):
    documented = {path for path, methods in http.get("/docs.json").json()["paths"].items() if "post" in methods}
    assert documented == set(BODIES)
    for path in BODIES:
        assert http.get(path).headers["allow"] == "POST"


@each_endpoint
@pytest.mark.parametrize("content_type", [None, "application/json", "application/json; charset=utf-8", "x/y+json"])
def test_json_content_types_are_accepted(http, path, content_type):
    headers = {"content-type": content_type} if content_type else {}
    assert http.post(path, content=json.dumps(BODIES[path]).encode(), headers=headers).status_code == 200


@pytest.mark.parametrize("fields", [{"pos_coords": [[1, 1]]}, {"prompts": [{"box": [1, 1, 9, 9]}] * 3}])
def test_room_is_checked_before_the_request_is_parsed(http, segmenter, fields):
    segmenter.room_error = Overloaded("8 requests wait")
    body = json.dumps({"input_image": "not parsed", **fields}).encode()
    answer = http.post("/mobile_sam", content=body)
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:mobile-sam:overloaded")
    assert segmenter.checked_bodies == [body]
    assert http.post("/embed", json=BODIES["/embed"]).status_code == 200
    assert segmenter.checked_bodies == [body]
