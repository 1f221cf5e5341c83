"""Requests of QuPath's extension SAM, replayed: the extension itself needs QuPath."""

import json
from typing import Any

import numpy as np
import pytest
import requests
from numpy.typing import NDArray
from pycocotools import mask as coco

from benchmarks.objects import iou
from tests.e2e.pictures import as_base64, filled, scene
from tests.integrations.conftest import own_answer

pytestmark = pytest.mark.e2e

X, Y = 240, 160
IMAGE = scene(51)


def ask(server, path: str, **fields: Any) -> list[dict[str, Any]]:
    """Send a request as the extension does, and return the features."""
    (weights,) = requests.get(f"{server.url}/sam/weights/?type=vit_t", timeout=60).json()
    body = {"type": "vit_t", "b64img": as_base64(IMAGE), "checkpoint_url": weights["url"], **fields}
    headers = {"accept": "application/json", "Content-Type": "application/json; charset=utf-8"}
    answer = requests.post(f"{server.url}{path}", data=json.dumps(body), headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    features: list[dict[str, Any]] = answer.json()
    return features


def pixels(geometry: dict[str, Any], size_hw: tuple[int, int]) -> NDArray[np.bool_]:
    """Return the pixels of a geometry."""
    shapes = [geometry["coordinates"]] if geometry["type"] == "Polygon" else geometry["coordinates"]
    rings = [ring for shape in shapes for ring in shape]
    assert all(ring[0] == ring[-1] for ring in rings)
    return filled(rings, size_hw)


PROMPTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "point": ({"point_coords": [[X, Y]], "point_labels": [1]}, {"pos_coords": [[X, Y]]}),
    "background": (
        {"point_coords": [[10, 10], [X, Y]], "point_labels": [0, 1]},
        {"pos_coords": [[X, Y]], "neg_coords": [[10, 10]]},
    ),
    "rectangle": ({"bbox": [60, 40, 500, 280]}, {"box": [60, 40, 480, 280]}),
}


@pytest.mark.parametrize("case", PROMPTS.values(), ids=PROMPTS)
def test_feature_is_the_mask_of_the_service(builtin_server, case):
    asked, fields = case
    (feature,) = ask(builtin_server, "/sam/", multimask_output=False, **asked)
    document = own_answer(builtin_server, IMAGE, **fields)
    (record,) = document["masks"]
    # Polygons are within half a pixel of the mask's edge.
    mask = coco.decode(record["rle"]).astype(bool)
    assert iou(pixels(feature["geometry"], mask.shape), mask) > 0.98
    assert feature["properties"]["quality"] == record["score"]
    assert feature["properties"]["sam_model"] == document["weights"]["name"]


def test_automatic_masks_are_features(builtin_server):
    thresholds = {"pred_iou_thresh": 0.5, "stability_score_thresh": 0.5, "box_nms_thresh": 0.2}
    features = ask(builtin_server, "/sam/automask/", points_per_side=6, output_type="Single mask", **thresholds)
    assert features
    assert all(feature["properties"]["quality"] > 0.5 for feature in features)
    records = own_answer(builtin_server, IMAGE, "/everything", points_per_side=6, **thresholds)["masks"]
    # Without those of the whole image, which the extension leaves out unless asked.
    masks = [coco.decode(record["segmentation"]).astype(bool) for record in records]
    for feature in features:
        assert max(iou(pixels(feature["geometry"], (320, 480)), mask) for mask in masks) > 0.9
