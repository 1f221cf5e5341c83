"""`POST /embed`."""

from __future__ import annotations

import base64

import pytest

from utils.api.images import ImageSource

IMAGE = base64.b64encode(b"an image file").decode()


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
    expected = {"image_id": "the id", "width": 40, "height": 30, "weights": {"name": "none"}, "model_version": 4}
    assert response.json() == expected
    assert segmenter.calls == [image]
