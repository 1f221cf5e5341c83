"""Answers about an image say in a header, too, how it was turned."""

import json

import pytest

from tests.fake_segmenter import IMAGE, record
from tests.http.asgi import Http

HEADER = "x-image-orientation"
CLICK = {"input_image": "aGVsbG8=", "pos_coords": [[1, 1]]}


@pytest.mark.parametrize("accept", [None, "application/json", "image/png"])
def test_masks_name_the_orientation_whatever_their_form(http: Http, accept):
    fields = {
        **CLICK,
        "mask_format": "png" if accept == "image/png" else "rle",
        "segmented_image": "none",
    }
    answer = http.post("/mobile_sam", json=fields, headers={"Accept": accept} if accept else {})
    assert (answer.status_code, answer.headers[HEADER]) == (200, str(IMAGE["orientation"]))


@pytest.mark.parametrize("orientation", [1, 8])
def test_embed_and_everything_name_the_orientation_of_the_result(
    http: Http, segmenter, orientation
):
    segmenter.image = {**IMAGE, "orientation": orientation}
    for path in ("/embed", "/everything"):
        answer = http.post(path, json={"input_image": "aGVsbG8="})
        assert answer.json()["orientation"] == orientation
        assert answer.headers[HEADER] == str(orientation)


def test_progress_names_the_orientation_in_the_header_and_in_the_result_alone(
    http: Http, segmenter
):
    segmenter.next_batches = [[record((0, 0, 10, 10))]]
    answer = http.post(
        "/everything", json={"input_image": "aGVsbG8=", "progress": True, "points_per_side": 8}
    )
    first, *_, last = map(json.loads, answer.text.splitlines())
    assert first == {"done": 0, "total": 4}
    assert last["result"]["orientation"] == IMAGE["orientation"]
    assert answer.headers[HEADER] == str(IMAGE["orientation"])


def test_answers_without_an_image_have_no_orientation(http: Http):
    refused = http.post("/mobile_sam", json={**CLICK, "labels": [5]})
    assert refused.status_code == 422
    several = http.post("/embed", json={"images": ["aGVsbG8=", "aGVsbG8="]})
    assert several.status_code == 202
    for answer in (refused, several, http.get("/info")):
        assert HEADER not in answer.headers
