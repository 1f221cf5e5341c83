"""Whole images: records like those of Segment Anything's generator, progress, and abort on
disconnect.
"""

import json
import time
from typing import Any

import cv2
import numpy as np
import pytest
import requests
from pycocotools import mask as coco

from harness import Server, wait_until
from tests.e2e.answers import NPY_ONLY, segmentation
from tests.e2e.pictures import as_base64, scene

pytestmark = pytest.mark.e2e

KEYS = {
    "segmentation",
    "area",
    "bbox",
    "predicted_iou",
    "point_coords",
    "stability_score",
    "crop_box",
}
NO_THRESHOLDS = {"pred_iou_thresh": 0, "stability_score_thresh": 0, "box_nms_thresh": 1}


@pytest.fixture(scope="module")
def image(server) -> dict[str, str]:
    return {"image_id": server.post("/embed", input_image=as_base64(scene(30))).json()["image_id"]}


def test_records_describe_distinct_masks(server, image):
    answer = server.post("/everything", **image, points_per_side=6, **NO_THRESHOLDS)
    assert answer.status_code == 200, answer.text
    result = answer.json()
    assert result["image_id"] == image["image_id"]
    assert result["masks"]
    for record in result["masks"]:
        assert set(record) == KEYS
        mask = coco.decode(record["segmentation"]).astype(bool)
        assert mask.shape == (320, 480)
        assert record["area"] == mask.sum() > 0
        rows, columns = np.nonzero(mask)
        x, y, width, height = record["bbox"]
        assert [x, y, x + width, y + height] == [
            columns.min(),
            rows.min(),
            columns.max() + 1,
            rows.max() + 1,
        ]
        assert record["crop_box"] == [0, 0, 480, 320]
        ((px, py),) = record["point_coords"]
        assert ((px / 480 * 6) % 1, (py / 320 * 6) % 1) == pytest.approx((0.5, 0.5), abs=1e-3)


def test_record_is_a_candidate_of_its_click(server, image):
    record = server.post("/everything", **image, points_per_side=3, **NO_THRESHOLDS).json()[
        "masks"
    ][0]
    candidates = segmentation(
        server.post(**image, pos_coords=record["point_coords"], multimask_output=True, **NPY_ONLY)
    )
    scores = [mask["score"] for mask in candidates.result["masks"]]
    index = int(np.abs(np.array(scores) - record["predicted_iou"]).argmin())
    assert scores[index] == pytest.approx(record["predicted_iou"], abs=1e-3)
    mask = coco.decode(record["segmentation"]).astype(bool)
    assert (mask != candidates.masks[index]).mean() < 1e-3


def test_crops_are_searched_and_small_regions_removed(server, image):
    options = {
        "points_per_side": 2,
        "crop_n_layers": 1,
        "min_mask_region_area": 50,
        **NO_THRESHOLDS,
    }
    before = server.embeddings()["encoded"]
    result = server.post("/everything", **image, **options).json()
    assert server.embeddings()["encoded"] - before == 4  # one per crop
    assert result["masks"]
    for record in result["masks"]:
        mask = coco.decode(record["segmentation"])
        assert mask.shape == (320, 480)
        count, _, stats, _ = cv2.connectedComponentsWithStats(1 - mask, connectivity=8)
        assert count == 1 or stats[1:, cv2.CC_STAT_AREA].min() >= 50
        x, y, width, height = record["crop_box"]
        assert x + width <= 480
        assert y + height <= 320


BATCHES_BEGUN = 'mobile_sam_stage_total{model="mobile_sam_everything",stage="cache"}'


def disconnect_after_two_lines(server: Server, fields: dict[str, Any]) -> None:
    url = f"{server.url}/everything"
    with requests.post(url, json={**fields, "progress": True}, stream=True, timeout=60) as answer:
        lines = answer.iter_lines()
        assert json.loads(next(lines))["done"] == 0
        next(lines)


def disconnect_before_the_answer(server: Server, fields: dict[str, Any]) -> None:
    before = server.count(BATCHES_BEGUN)
    with server.sending("/everything", **fields):
        # Counts follow a second later, also those of an earlier request.
        wait_until(lambda: server.count(BATCHES_BEGUN) > before + 8)


@pytest.mark.parametrize("send", [disconnect_after_two_lines, disconnect_before_the_answer])
def test_work_is_aborted_when_the_caller_disconnects(server, image, send):
    # Whether the batch at work is cancelled (`mobile_sam_cancelled_total`) depends on the moment:
    # there may be none.
    before = server.count(BATCHES_BEGUN)
    grids, side = 1 + 4, 63  # of the image and its crops: half of them take long on any machine
    send(server, {**image, "points_per_side": side, "crop_n_layers": 1, "pred_iou_thresh": 1})

    def no_batch_begins() -> object:
        begun = server.count(BATCHES_BEGUN)
        time.sleep(3)
        return server.count(BATCHES_BEGUN) == begun

    wait_until(no_batch_begins, what="the work was not aborted")
    assert server.count(BATCHES_BEGUN) - before < grids * side**2 // 16 / 2
