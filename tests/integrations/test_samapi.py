"""Requests of QuPath's extension SAM, replayed: the extension itself needs QuPath."""

from typing import Any

import pytest
import requests
from pycocotools import mask as coco

from benchmarks.objects import iou
from tests.e2e.pictures import as_base64, filled, scene
from tests.integrations.conftest import KEY, own_answer

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

X, Y = 240, 160
IMAGE = scene(51)


def ask(server, path: str, **fields: Any) -> list[dict[str, Any]]:
    """Send a request as the extension does, and return the features."""
    (weights,) = requests.get(f"{server.url}/sam/weights/?type=vit_t", timeout=60).json()
    body = {"type": "vit_t", "b64img": as_base64(IMAGE), "checkpoint_url": weights["url"], **fields}
    answer = requests.post(f"{server.url}{path}", json=body, headers={"X-API-Key": KEY}, timeout=60)
    assert answer.status_code == 200, answer.text
    features: list[dict[str, Any]] = answer.json()
    return features


def test_features_are_the_masks_of_the_service(server):
    fields: dict[str, Any] = {
        "point_coords": [[10, 10], [X, Y]],
        "point_labels": [0, 1],
        "bbox": [60, 40, 500, 280],
    }
    found = ask(server, "/sam/", multimask_output=False, **fields)
    fields = {"pos_coords": [[X, Y]], "neg_coords": [[10, 10]], "box": [60, 40, 480, 280]}
    document = own_answer(server, IMAGE, **fields)
    thresholds = {"pred_iou_thresh": 0.5, "stability_score_thresh": 0.5, "points_per_side": 6}
    everything = own_answer(server, IMAGE, "/everything", **thresholds)["masks"]
    found += ask(
        server, "/sam/automask/", include_image_edge=True, output_type="Single mask", **thresholds
    )
    rles = [document["masks"][0]["rle"], *(record["segmentation"] for record in everything)]
    assert len(found) > 2
    for feature, rle in zip(found, rles, strict=True):
        shapes = feature["geometry"]["coordinates"]
        rings = (
            shapes
            if feature["geometry"]["type"] == "Polygon"
            else [ring for shape in shapes for ring in shape]
        )
        mask = coco.decode(rle).astype(bool)
        # Polygons are within half a pixel of the mask's edge.
        assert iou(filled(rings, mask.shape), mask) > 0.9
        assert feature["properties"]["sam_model"] == document["weights"]["name"]
