"""Automatic masks on a pipeline with stand-ins for the encoder and the decoder."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from orchestrator.cache import MOBILE_SAM_SHAPES
from orchestrator.everything import records, warm_up
from orchestrator.networks import DecoderError
from orchestrator.problems import Rejected
from tests.unit.orchestrator.pipelines import (
    HEIGHT,
    REGION,
    WIDTH,
    decoder,
    model_request,
    sizes_encoded,
)


@pytest.mark.parametrize(
    ("threshold", "count"),
    [(None, 4), (float(np.float32(0.8)), 2), (0.95, 0)],
    ids=["default", "equal to a score", "none"],
)
def test_records_are_the_masks_above_the_thresholds(pipeline, threshold, count):
    options: dict[str, Any] = {
        "crop_box": [0, 0, WIDTH, HEIGHT],
        "stability_score_offset": 1.0,
        "min_mask_region_area": 0,
    }
    if threshold is not None:
        options["pred_iou_thresh"] = threshold
    (lines,) = records(pipeline, model_request(points=[[5, 5], [6, 6]], **options))
    found = json.loads(b"".join(lines))
    assert found["engine"] == pipeline.identity["engine"]
    assert len(found["masks"]) == count
    assert {record["area"] for record in found["masks"]} <= {24 * 32}


def test_warm_up_runs_the_decoder_on_as_many_points_as_a_grid_does(pipeline):
    sizes: list[int] = []

    def run(inputs: dict[str, Any], outputs: list[str]) -> list[Any]:
        sizes.append(len(inputs["point_labels"]))
        return decoder(inputs, outputs)

    counting = replace(pipeline, run_decoder=run)
    warm_up(counting, MOBILE_SAM_SHAPES)
    options: dict[str, Any] = {"crop_box": [0, 0, WIDTH, HEIGHT]}
    options |= {"stability_score_offset": 1.0, "min_mask_region_area": 0}
    records(counting, model_request(points=[[5, 5]] * 8, **options))
    assert sizes == [4, 4, 4]
    broken = replace(
        pipeline, run_decoder=lambda *given: [part * np.nan for part in decoder(*given)]
    )
    with pytest.raises(DecoderError):
        warm_up(broken, MOBILE_SAM_SHAPES)


def test_batch_with_too_many_grid_points_is_rejected_before_the_decoder_runs(pipeline):
    ran: list[dict[str, Any]] = []
    counting = replace(pipeline, run_decoder=lambda inputs, _: ran.append(inputs))
    batch = model_request(
        points=[[5, 5]] * 1000, crop_box=[0, 0, WIDTH, HEIGHT], min_mask_region_area=5
    )
    with pytest.raises(Rejected, match="too-much-work"):
        records(counting, batch)
    assert ran == []


def test_crop_outside_of_the_image_is_rejected(pipeline):
    with pytest.raises(Rejected, match="crop_box"):
        records(pipeline, model_request(crop_box=[0, 0, WIDTH + 1, HEIGHT]))


def test_records_of_a_crop_do_not_encode_the_whole_image(pipeline):
    encoded = sizes_encoded(pipeline)
    options: dict[str, Any] = {
        "crop_box": REGION,
        "stability_score_offset": 1.0,
        "min_mask_region_area": 0,
        "pred_iou_thresh": 0,
    }
    (lines,) = records(pipeline, model_request(points=[[10, 10]], **options))
    assert encoded == [(1024, 1024)]
    assert {tuple(found["crop_box"]) for found in json.loads(b"".join(lines))["masks"]} <= {
        (8, 4, 32, 32)
    }
