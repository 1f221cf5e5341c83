"""Passing of requests and results between HTTP and the segmenter: `/mobile_sam`, and what all
endpoints share.
"""

import base64
import json

import pytest
from requests_toolbelt.multipart.decoder import MultipartDecoder

from orchestrator.costs import MIN_COSTLY_OBJECTS
from orchestrator.tensors import SEGMENT_COSTLY
from utils.edge.pages import LIVE, READY
from utils.edge.stack import edge
from utils.errors import InferenceUnavailable, Overloaded, Problem, RejectedByModel
from utils.inference.request import ImageSource
from utils.integrations import ADAPTERS
from utils.settings import DEFAULT_INTEGRATIONS

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
        "clip": False,
    }
    segment(
        http,
        neg_coords=[[3, 4]],
        box=[0, 0, 9, 9],
        region=[0, 0, 64, 48.5],
        model_version=7,
        **options,
    )
    ((image, job),) = segmenter.jobs
    assert image == ImageSource(b"an image file", None, region=(0, 0, 64, 48.5))
    assert job.inputs["point_coords"].tolist() == [[[1, 2], [3, 4], [0, 0], [9, 9]]]
    assert job.inputs["point_labels"].tolist() == [[1, 0, 2, 3]]
    assert job.options == {**options, "document": False, "offer_clip": True}
    assert job.model_version == 7


@pytest.mark.parametrize("path", ["/mobile_sam?clip=true", "/mobile_sam"])
def test_clip_reaches_the_segmenter_with_the_names_of_the_fields(http, segmenter, path):
    fields = {} if "clip" in path else {"clip": True}
    body = {"input_image": IMAGE, "pos_coords": [[-1, 2]], "box": [-5, 0, 9, 9], **fields}
    assert http.post(path, json=body).status_code == 200
    ((_, job),) = segmenter.jobs
    assert job.inputs["point_coords"].tolist() == [[[-1, 2], [-5, 0], [9, 9]]]
    assert job.options["clip"] is True
    assert job.options["point_paths"] == (("pos_coords[0]", "box", "box"),)


@pytest.mark.parametrize(
    "body", [{"clip": 1}, {"clip": "true"}, {"prompts": [{"box": [0, 0, 9, 9], "clip": True}]}]
)
def test_clip_is_one_switch_for_the_whole_request(http, segmenter, body):
    response = http.post("/mobile_sam", json={"input_image": IMAGE, **body})
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == (
        "prompts[0].clip" if "prompts" in body else "clip"
    )


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_clip_accepts_finite_numbers_only(http, segmenter, number):
    body = f'{{"image_id": "a", "clip": true, "pos_coords": [[{number}, 1]]}}'
    response = http.post("/mobile_sam", content=body)
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "pos_coords[0][0]"
    assert not segmenter.calls


def test_embed_returns_the_models_result(http, segmenter):
    response = http.post("/embed", json={"image_id": "an id", "model_version": 3})
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    assert response.json() == segmenter.image
    assert (segmenter.calls, segmenter.asked_version) == ([ImageSource(None, "an id")], 3)


@pytest.mark.parametrize(
    ("mask_format", "mask_type", "file"),
    [
        ("json", b"application/json", b""),
        ("npy", b"application/octet-stream", b'; filename="mask.npy"'),
        ("png", b"image/png", b'; filename="mask.png"'),
        ("rle", b"application/json", b""),
        ("polygon", b"application/json", b""),
    ],
)
def test_answer_has_mask_picture_and_result_in_this_order(
    http, segmenter, mask_format, mask_type, file
):
    response = segment(http, mask_format=mask_format)
    # A boundary of its own.
    assert response.headers["content-type"] != segment(http).headers["content-type"]
    assert [tuple(part.headers.values()) for part in parts(response)] == [
        (b'form-data; name="mask"' + file, mask_type),
        (b'form-data; name="segmented_image"; filename="segmented_image.png"', b"image/png"),
        (b'form-data; name="result"', b"application/json"),
    ]
    assert [part.content for part in parts(response)] == [
        b"the mask",
        b"the picture",
        segmenter.result,
    ]
    without = segment(http, mask_format=mask_format, segmented_image="none")
    assert [part.content for part in parts(without)] == [b"the mask", segmenter.result]


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
        (
            RejectedByModel(Problem(415, "unsupported-image-format", "t", "d")),
            415,
            "unsupported-image-format",
        ),
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


def test_documented_post_paths_are_complete(http):
    paths = http.get("/docs.json").json()["paths"]
    documented = {
        path
        for path, methods in paths.items()
        if methods.get("post", {}).get("tags") == ["Segmentation"]
    }
    assert documented == set(BODIES)
    for path in BODIES:
        assert http.get(path).headers["allow"] == "POST"


def test_paths_of_probes_and_annotation_tools_are_documented(http):
    paths = http.get("/docs.json").json()["paths"]
    tools = [adapter for adapter in ADAPTERS if adapter.name in DEFAULT_INTEGRATIONS]
    assert paths.keys() >= {*LIVE, *READY}
    documented = {
        (path, method)
        for path, methods in paths.items()
        for method, operation in methods.items()
        if operation["tags"] == ["Annotation tools"]
    }
    pages = {(path, "get") for adapter in tools for path in adapter.pages}
    work = {(path, "post") for adapter in tools for path in adapter.work}
    assert documented == pages | work
    unknown = http.get("/v1")
    assert unknown.status_code == 404
    assert unknown.json()["detail"].endswith("the page at / lists the paths of the API")


@pytest.mark.parametrize(
    "content_type", [None, "application/json", "application/json; charset=utf-8", "x/y+json"]
)
def test_json_content_types_are_accepted(http, content_type):
    headers = {"content-type": content_type} if content_type else {}
    assert (
        http.post(
            "/embed", content=json.dumps(BODIES["/embed"]).encode(), headers=headers
        ).status_code
        == 200
    )


@pytest.mark.parametrize(
    "content_type", ["text/plain", "multipart/mixed", "application/x-www-form-urlencoded", "x"]
)
def test_other_content_type_is_a_415(http, content_type):
    response = http.post("/mobile_sam", content=b"{}", headers={"content-type": content_type})
    assert response.status_code == 415
    assert content_type in response.json()["detail"]


@each_endpoint
@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        pytest.param(b"[" * 19_000 + b"]" * 19_000, 400, "body", id="19,000-nested-lists"),
        pytest.param(
            b'{"labels": [' + b"[1,2]," * 3_000_000 + b"1]}", 422, "body", id="three-million-points"
        ),
        pytest.param(b'{"progress": 1, "box": 1, "x": 1}', 422, None, id="fields-of-single-paths"),
    ],
)
def test_bad_body_is_a_4xx_problem_that_names_the_field(
    http, segmenter, *, path, body, status, field
):
    response = http.post(path, content=body, headers={"content-type": "application/json"})
    assert (response.status_code, response.headers["content-type"]) == (
        status,
        "application/problem+json",
    )
    own = {"/mobile_sam": ["box", "progress", "x"], "/embed": ["progress", "box", "x"]}
    fields = [error["field"] for error in response.json()["errors"]]
    assert fields == ([field] if field else own.get(path, ["progress", "box", "x"]))
    assert not segmenter.calls


def test_room_is_checked_before_the_request_is_parsed(triton_segmenter, http, monkeypatch):
    def refuse(_: str) -> None:
        raise Overloaded("8 requests wait")

    monkeypatch.setattr(triton_segmenter._turns[SEGMENT_COSTLY], "check", refuse)
    costly = b'{"prompts": [' + b'{"not": "parsed"},' * MIN_COSTLY_OBJECTS
    answer = http.post("/mobile_sam", content=costly)
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:mobile-sam:overloaded")
    assert http.post("/mobile_sam", json=BODIES["/mobile_sam"]).status_code == 200
    assert http.post("/everything", content=costly).status_code == 400


def test_costly_conversions_for_tools_notice_callers_of_other_paths(service, http):
    ((_, options),) = [entry for entry in service.svc.middlewares if entry[0] is edge]
    active = options["site"].adapters._service.active
    active._noted.clear()  # callers of other tests
    http.post("/mobile_sam", json={})
    assert active.has_others("198.51.100.1")
