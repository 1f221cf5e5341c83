"""One click in every format: the masks are equal, and the pictures show the mask."""

from __future__ import annotations

import base64
import hashlib
import io
import json

import numpy as np
import pytest
from PIL import Image, ImageDraw

from tests.e2e.answers import parts

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def photo() -> bytes:
    picture = Image.effect_noise((300, 200), 60).convert("RGB")
    ImageDraw.Draw(picture).ellipse([80, 40, 220, 160], fill=(200, 40, 40))
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def test_all_formats_hold_the_mask_that_the_result_describes(server, photo):
    click = {"input_image": base64.b64encode(photo).decode(), "pos_coords": [[150, 100]]}

    as_json, overlay, result = parts(server.post(**click))
    mask = np.array(json.loads(as_json), bool)
    assert mask.shape == (200, 300)

    result = json.loads(result)
    assert result["image_id"] == hashlib.sha256(photo).hexdigest()
    assert (result["width"], result["height"]) == (300, 200)
    assert result["masks"][0]["area"] == mask.sum()
    assert set(result["weights"]) == {"name", "sha256", "trained", "note"}
    assert result["engine"] == {"encoder": "openvino f32", "decoder": "openvino f32"}

    as_npy, cutout, _ = parts(server.post(**click, mask_format="npy", segmented_image="cutout"))
    assert np.array_equal(np.load(io.BytesIO(as_npy)), mask)

    as_png, _ = parts(server.post(**click, mask_format="png", segmented_image="none"))
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(as_png))), mask)

    assert np.array_equal(np.asarray(Image.open(io.BytesIO(cutout)))[..., 3] > 0, mask)
    original = np.asarray(Image.open(io.BytesIO(photo)))
    drawn = np.asarray(Image.open(io.BytesIO(overlay)))
    assert drawn.shape == original.shape
    assert mask.any()
    assert (drawn[mask] != original[mask]).any()

    three, _, result = parts(server.post(**click, mask_format="npy", multimask_output=True))
    assert np.load(io.BytesIO(three)).shape == (3, 200, 300)
    assert len(json.loads(result)["masks"]) == 3
