"""Passing of requests and results between HTTP and the segmenter: `/mobile_sam`, and what all endpoints share."""

import base64
import json

import pytest
from requests_toolbelt.multipart.decoder import MultipartDecoder

from utils.api.errors import InferenceUnavailable, Overloaded, Problem, RejectedByModel
from utils.api.inputs import ImageSource
from utils.triton.segmenter import MIN_COSTLY_OBJECTS, job_options
from utils.triton.tensors import SEGMENT_COSTLY

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


@pytest.mark.parametrize(
    ("fields", "image"),
    [
        pytest.param({"input_image": IMAGE}, ImageSource(b"an image file", None), id="file"),
        pytest.param({"image_id": "an id"}, ImageSource(None, "an id"), id="id"),
    ],
)
def test_embed_returns_the_models_result(http, segmenter, fields, image):
    response = http.post("/embed", json=fields)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json() == segmenter.image
    assert segmenter.calls == [image]


@pytest.mark.parametrize(
    ("mask_format", "mask_type"),
    [
        ("json", b"application/json"),
        ("npy", b"application/octet-stream"),
        ("png", b"image/png"),
        ("rle", b"application/json"),
        ("polygon", b"application/json"),
    ],
)
def test_answer_has_mask_picture_and_result_in_this_order_with_their_content_types(
    http, segmenter, mask_format, mask_type
):
    response = segment(http, mask_format=mask_format)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("multipart/form-data; boundary=")
    names = [part.headers[b"Content-Disposition"].decode().split(";")[1].strip() for part in parts(response)]
    assert names == ['name="mask"', 'name="segmented_image"', 'name="result"']
    assert [part.headers[b"Content-Type"] for part in parts(response)] == [mask_type, b"image/png", b"application/json"]
    assert [part.content for part in parts(response)] == [b"the mask", b"the picture", segmenter.result]


def test_answer_has_no_picture_if_none_is_requested(http, segmenter):
    assert [part.content for part in parts(segment(http, segmented_image="none"))] == [b"the mask", segmenter.result]


BODIES = {
    "/mobile_sam": {"input_image": IMAGE, "pos_coords": [[1, 2]]},
    "/embed": {"input_image": IMAGE},
    "/everything": {"input_image": IMAGE},
}
each_endpoint = pytest.mark.parametrize("path", BODIES)


@each_endpoint
@pytest.mark.parametrize(
    ("error", "status", "slug"),
    [
        (InferenceUnavailable("starting"), 503, "inference-unavailable"),
        (RejectedByModel(Problem(415, "unsupported-image-format", "t", "d")), 415, "unsupported-image-format"),
        (RuntimeError("a bug with a /secret/path"), 500, "internal-error"),
    ],
    ids=["unavailable", "rejected", "bug"],
)
def test_segmenter_errors_become_problems(http, segmenter, *, path, error, status, slug):
    segmenter.error = error
    response = http.post(path, json=BODIES[path])
    assert response.status_code == response.json()["status"] == status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["type"] == f"urn:mobile-sam:{slug}"
    assert response.headers.get("retry-after") == ("5" if status == 503 else None)
    assert "secret" not in response.text


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


def test_room_is_checked_before_the_request_is_parsed(triton_segmenter, http, monkeypatch):
    def refuse() -> None:
        raise Overloaded("8 requests wait")

    monkeypatch.setattr(triton_segmenter._semaphores[SEGMENT_COSTLY], "check", refuse)
    costly = b'{"prompts": [' + b'{"not": "parsed"},' * MIN_COSTLY_OBJECTS
    answer = http.post("/mobile_sam", content=costly)
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:mobile-sam:overloaded")
    assert http.post("/mobile_sam", json=BODIES["/mobile_sam"]).status_code == 200
    assert http.post("/everything", content=costly).status_code == 400
