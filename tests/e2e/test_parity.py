"""Masks over HTTP match those of the official PyTorch predictor, refined masks included."""

from __future__ import annotations

import base64
import io
import json

import numpy as np
import pytest

from tests.e2e.answers import segmentation
from tests.e2e.pictures import as_base64

pytestmark = pytest.mark.e2e


def low_res_mask(logits) -> str:
    file = io.BytesIO()
    np.save(file, np.asarray(logits, np.float32))
    return base64.b64encode(file.getvalue()).decode()


def test_areas_and_scores_match_the_reference(server, shared):
    cases = json.loads((shared / "reference" / "cases.json").read_text())
    expected = np.load(shared / "reference" / "expected.npz")
    images = {case["image"]: as_base64((shared / "images" / case["image"]).read_bytes()) for case in cases}
    ids = {name: server.post("/embed", input_image=image).json()["image_id"] for name, image in images.items()}
    for number, case in enumerate(cases):
        name, key = case["image"], f"{case['image']}/{case['case']}"
        fields = {"pos_coords": case["points"], "labels": case["labels"], "box": case["box"]}
        if "mask_input" in case:
            fields["mask_input"] = low_res_mask(expected[case["mask_input"]][case["mask_index"]])
        answer = server.post(
            **({"image_id": ids[name]} if number % 2 else {"input_image": images[name]}),
            multimask_output=case["multimask"],
            mask_format="npy",
            segmented_image="none",
            **fields,
        )
        parsed = segmentation(answer)
        result, masks = parsed.result, parsed.masks
        if masks.ndim == 2:
            masks = masks[None]
        areas = np.array(expected[f"area/{key}"]).reshape(-1)
        assert masks.shape == (len(areas), result["height"], result["width"])
        assert np.abs(masks.mean(axis=(1, 2)) - areas).max() <= 0.003, key
        assert [mask["area"] for mask in result["masks"]] == masks.sum(axis=(1, 2)).tolist()
        scores = [mask["score"] for mask in result["masks"]]
        assert scores == pytest.approx(np.array(expected[f"iou/{key}"]).reshape(-1).tolist(), abs=1e-3), key
    assert sum("mask_input" in case for case in cases) >= 4


def test_low_res_masks_and_their_refinements_match_the_reference(server, shared):
    expected = np.load(shared / "reference" / "expected.npz")
    refinements = [
        case for case in json.loads((shared / "reference" / "cases.json").read_text()) if "mask_input" in case
    ]
    for case in refinements:
        image = {"input_image": as_base64((shared / "images" / case["image"]).read_bytes())}
        click = {"pos_coords": case["points"], "labels": case["labels"]}
        options = {"mask_format": "npy", "segmented_image": "none"}
        first = segmentation(server.post(**image, **click, **options, multimask_output=True, low_res_mask=True))
        ours = [base64.b64decode(mask["low_res_mask"]) for mask in first.result["masks"]]
        low_res = np.stack([np.load(io.BytesIO(file)) for file in ours])
        assert low_res.shape == (3, 256, 256)
        assert np.allclose(low_res, expected[case["mask_input"]], rtol=1e-3, atol=1e-3)  # stored as float16

        earlier = first.result["masks"][case["mask_index"]]["low_res_mask"]
        refined = segmentation(server.post(**image, **click, **options, mask_input=earlier))
        key = f"{case['image']}/{case['case']}"
        assert refined.result["masks"][0]["score"] == pytest.approx(float(expected[f"iou/{key}"].item()), abs=1e-3)
        assert abs(refined.masks.mean() - float(expected[f"area/{key}"].item())) <= 0.003
