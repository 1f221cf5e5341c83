"""Masks through HTTP are those of the official PyTorch predictor."""

from __future__ import annotations

import base64
import io
import json

import numpy as np
import pytest
from requests_toolbelt.multipart.decoder import MultipartDecoder

pytestmark = pytest.mark.e2e


def test_every_case_of_the_reference_has_the_same_areas_and_scores(server, shared):
    cases = json.loads((shared / "reference" / "cases.json").read_text())
    expected = np.load(shared / "reference" / "expected.npz")
    images = {}
    compared = 0
    for case in cases:
        if case.get("mask_input"):
            continue  # refining an earlier mask is no part of the request yet
        name = case["image"]
        if name not in images:
            images[name] = base64.b64encode((shared / "images" / name).read_bytes()).decode()
        fields = {"pos_coords": case["points"], "labels": case["labels"], "box": case["box"]}
        answer = server.post(
            input_image=images[name],
            multimask_output=case["multimask"],
            mask_format="npy",
            segmented_image="none",
            **fields,
        )
        assert answer.status_code == 200, answer.text
        mask_part, result_part = MultipartDecoder.from_response(answer).parts
        masks = np.load(io.BytesIO(mask_part.content))
        result = json.loads(result_part.content)
        if masks.ndim == 2:
            masks = masks[None]
        key = f"{name}/{case['case']}"
        areas = np.array(expected[f"area/{key}"]).reshape(-1)
        assert masks.shape == (len(areas), result["height"], result["width"])
        assert np.abs(masks.mean(axis=(1, 2)) - areas).max() <= 0.003, key
        assert [mask["area"] for mask in result["masks"]] == masks.sum(axis=(1, 2)).tolist()
        scores = [mask["score"] for mask in result["masks"]]
        assert scores == pytest.approx(np.array(expected[f"iou/{key}"]).reshape(-1).tolist(), abs=1e-3), key
        compared += 1
    assert compared >= 5
