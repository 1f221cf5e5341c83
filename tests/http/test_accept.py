"""Media type of the answer, by the header `Accept`."""

import pytest

REQUEST = {"image_id": "an id", "pos_coords": [[1, 2]]}
FORM, JSON, PNG = "multipart/form-data", "application/json", "image/png"


def segment(http, accept, **fields):
    headers = {} if accept is None else {"accept": accept}
    return http.post("/mobile_sam", json={**REQUEST, **fields}, headers=headers)


def media_type(http, accept):
    response = segment(http, accept)
    assert response.status_code == 200
    return response.headers["content-type"].split(";")[0]


@pytest.mark.parametrize(
    "accept", [None, "", "*/*", FORM, f"{JSON}, text/plain, */*", "text/html,*/*;q=0.8"]
)
def test_answer_is_multipart_by_default(http, accept):
    assert media_type(http, accept) == FORM


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("Application/JSON", JSON),
        (PNG, PNG),
        ("image/*", PNG),
        ("application/*", JSON),
        ("application/json, */*;q=0.1", JSON),
        ("image/png;q=0.9, application/json;q=0.8", PNG),
        ("multipart/form-data;q=0, */*", JSON),
        ("application/json;q=7", JSON),
        (", ,application/json", JSON),
    ],
)
def test_accepted_type_with_the_highest_quality_is_answered(http, accept, expected):
    assert media_type(http, accept) == expected


@pytest.mark.parametrize(
    "accept", ["text/html", "application/json;q=0", "image/jpeg, audio/*", "x" * 5000, "\x01"]
)
def test_other_types_are_not_acceptable(http, segmenter, accept):
    response = segment(http, accept)
    assert (response.status_code, response.json()["type"]) == (406, "urn:mobile-sam:not-acceptable")
    assert "multipart/form-data, application/json, image/png" in response.json()["detail"]
    assert len(response.content) < 1000
    assert not segmenter.calls


@pytest.mark.parametrize("accept", [JSON, PNG])
def test_errors_are_problems_whatever_is_accepted(http, accept):
    response = segment(http, accept, box=[1])
    assert (response.status_code, response.headers["content-type"]) == (
        422,
        "application/problem+json",
    )


@pytest.mark.parametrize(
    ("accept", "fields", "mask_format", "picture"),
    [
        (FORM, {}, "json", "overlay"),
        (JSON, {}, "rle", "none"),
        (JSON, {"mask_format": "polygon", "segmented_image": "cutout"}, "polygon", "cutout"),
        (JSON, {"mask_format": "json", "segmented_image": "overlay"}, "json", "overlay"),
        (PNG, {}, "png", "none"),
        (PNG, {"mask_format": "png"}, "png", "none"),
        (PNG, {"segmented_image": "overlay", "mask_format": "json"}, "rle", "overlay"),
    ],
)
def test_defaults_depend_on_the_type_of_the_answer(
    http, segmenter, *, accept, fields, mask_format, picture
):
    assert segment(http, accept, **fields).status_code == 200
    options = segmenter.jobs[0][1].options
    assert (options["mask_format"], options["segmented_image"]) == (mask_format, picture)
    assert options["document"] is (accept == JSON)


@pytest.mark.parametrize(
    ("accept", "mask_format", "expected"),
    [
        (JSON, "npy", "rle or polygon or png or json for an answer of application/json"),
        (PNG, "rle", "png for an answer of image/png"),
    ],
)
def test_formats_that_the_answer_cannot_have_are_rejected(http, accept, mask_format, expected):
    response = segment(http, accept, mask_format=mask_format)
    assert response.status_code == 422
    assert response.json()["errors"] == [
        {"field": "mask_format", "expected": expected, "got": mask_format}
    ]


def test_answers_have_the_contents_of_the_parts(http, segmenter):
    assert segment(http, JSON).content == segmenter.result
    assert segment(http, PNG).content == b"the mask"
    assert segment(http, PNG, segmented_image="cutout").content == b"the picture"


def test_long_accept_header_is_a_406_before_it_is_split(http):
    response = http.post("/mobile_sam", json={"image_id": "an id"}, headers={"accept": "," * 8193})
    assert response.status_code == 406
    assert "got 8193 characters (at most 8192)" in response.json()["detail"]
