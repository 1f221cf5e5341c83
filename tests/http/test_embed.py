"""`POST /embed`: an image in, its id out."""

from __future__ import annotations

import base64

import pytest

from utils.images import ImageSource

IMAGE = base64.b64encode(b"an image file").decode()


@pytest.mark.parametrize(
    ("fields", "image"),
    [
        pytest.param({"input_image": IMAGE}, ImageSource(b"an image file", None), id="a file"),
        pytest.param({"image_id": "an id"}, ImageSource(None, "an id"), id="an id"),
    ],
)
def test_an_image_is_answered_with_what_the_model_says_of_it(http, segmenter, fields, image):
    response = http.post("/embed", json=fields)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    said = {"image_id": "the id", "width": 40, "height": 30, "weights": {"name": "none"}, "model_version": 4}
    assert response.json() == said
    assert segmenter.asked == [image]
