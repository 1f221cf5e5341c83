"""Frames above 25 megapixels in the adapters, with the real service: masks in the frame's own
pixels.
"""

import base64
import io
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco

from harness import Server
from mobile_sam_client import Client, InvalidImage
from tests.e2e.pictures import filled, scene

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SMALL, SCALE = (700, 466), 10
WIDTH, HEIGHT = SMALL[0] * SCALE, SMALL[1] * SCALE
CLICK = [3500, 2300]


def frame(file_format: str) -> bytes:
    """Return a file of 32.6 megapixels."""
    picture = Image.open(io.BytesIO(scene(7, SMALL))).resize(
        (WIDTH, HEIGHT), Image.Resampling.NEAREST
    )
    file = io.BytesIO()
    picture.save(file, file_format)
    return file.getvalue()


def ask(server: Server, path: str, body: dict[str, Any], **headers: str) -> Any:
    answer = httpx.post(f"{server.url}{path}", json=body, headers=headers, timeout=120)
    assert answer.status_code == 200, answer.text[:1000]
    return answer.json()


def iou(mask: np.ndarray, other: np.ndarray) -> float:
    return float((mask & other).sum() / (mask | other).sum())


@pytest.mark.parametrize("file_format", ["JPEG", "PNG"])
def test_large_frame_gets_masks_in_every_tool_as_from_a_client_that_scales_it(server, file_format):
    file = frame(file_format)
    with Client(server.url, max_side=4096, timeout=120) as client:
        wanted = client.segment(file, pos_coords=CLICK)
    assert wanted.mask.shape == (HEIGHT, WIDTH)
    with Client(server.url) as client, pytest.raises(InvalidImage, match="max_side"):
        client.segment(file, pos_coords=CLICK)
    text = base64.b64encode(file).decode()

    prompts = [{"points": [{"x": CLICK[0], "y": CLICK[1]}]}]
    body = {
        "image": {"type": "base64", "value": text},
        "prompts": prompts,
        "multimask_output": False,
        "format": "rle",
    }
    for _ in range(2):  # encoded, and cached
        (prediction,) = ask(server, "/sam2/segment_image", body)["predictions"]
        assert prediction["masks"]["size"] == [HEIGHT, WIDTH]
        rle = {**prediction["masks"], "counts": prediction["masks"]["counts"].encode()}
        assert iou(coco.decode(rle) > 0, wanted.mask) > 0.99

    marks = [{"type": "point", "data": CLICK, "label": 1}]
    params = {"marks": marks, "current_task": "polygon", "epsilon_factor": 0.0}
    answer = ask(server, "/v1/predict", {"model": "mobile_sam", "image": text, "params": params})
    assert answer["success"], answer
    rings = [shape["points"] for shape in answer["data"]["shapes"]]
    outside = np.array(np.concatenate(rings))
    assert outside.min() >= 0
    assert (outside.max(axis=0) <= [WIDTH, HEIGHT]).all()

    headers = {"x-nuclio-function-name": "mobile-sam"}
    answer = ask(
        server,
        "/api/function_invocations",
        {"image": text, "pos_points": [CLICK], "neg_points": []},
        **headers,
    )
    left, top, right, bottom = answer["bounds"]
    found = np.zeros((HEIGHT, WIDTH), bool)
    found[top : bottom + 1, left : right + 1] = np.array(answer["mask"], np.uint8) > 0
    assert iou(found, wanted.mask) > 0.99

    (feature,) = ask(
        server, "/sam/", {"b64img": text, "point_coords": [CLICK], "point_labels": [1]}
    )
    parts = feature["geometry"]["coordinates"]
    parts = [parts] if feature["geometry"]["type"] == "Polygon" else parts
    outlined = np.logical_or.reduce([filled(rings, (HEIGHT, WIDTH)) for rings in parts])
    assert iou(outlined, wanted.mask) > 0.985


def test_frame_that_takes_too_much_memory_is_refused_with_advice(server):
    picture = Image.new("L", (30_000, 20_000))
    file = io.BytesIO()
    picture.save(file, "PNG")
    body = {
        "b64img": base64.b64encode(file.getvalue()).decode(),
        "point_coords": [CLICK],
        "point_labels": [1],
    }
    answer = httpx.post(f"{server.url}/sam/", json=body, timeout=120)
    assert answer.status_code == 413
    assert (
        "at most 400000000 pixels in a PNG file: replace the image by a smaller one"
        in answer.json()["detail"]
    )
