"""Masks over HTTP match the official predictor's, with the official weights and the machine's default engine."""

from __future__ import annotations

import base64

import numpy as np
import pytest
from PIL import Image

from mobile_sam_client import Client
from mobile_sam_client.compat import SamPredictor
from tests.e2e.answers import segmentation
from tests.e2e.server import Server
from tests.parity.cases import EXPECTED, ious, packed, read_cases

pytestmark = pytest.mark.e2e
MIN_MEAN_IOU = 0.98
"""Minimum for every engine that `auto` may choose."""


def test_masks_match_the_official_predictor(official_server: Server, record_property) -> None:
    same: list[float] = []
    low_res: dict[str, str] = {}
    image_ids: dict[str, str] = {}
    with np.load(EXPECTED) as expected:
        for case in read_cases():
            image = base64.b64encode(case.file.read_bytes()).decode()
            source = {"image_id": image_ids[case.image]} if case.image in image_ids else {"input_image": image}
            answer = segmentation(
                official_server.post(
                    **source,
                    pos_coords=case.points_xy,
                    labels=case.labels,
                    box=case.box_xyxy,
                    mask_input=low_res[case.refines] if case.refines else None,
                    multimask_output=case.multimask,
                    low_res_mask=True,
                    mask_format="npy",
                    segmented_image="none",
                )
            )
            image_ids[case.image] = answer.result["image_id"]
            best = max(answer.result["masks"], key=lambda mask: mask["score"])
            low_res[case.name] = best["low_res_mask"]
            same += ious(packed(answer.masks.reshape(-1, *answer.masks.shape[-2:])), expected[f"mask/{case.name}"])
    assert answer.result["weights"]["name"] == "official"
    record_property("mean IoU with the official predictor's masks", f"{np.mean(same):.4f}, worst {min(same):.4f}")
    assert np.mean(same) >= MIN_MEAN_IOU


def test_compat_predictor_matches_the_official_predictor(official_server: Server) -> None:
    same: list[float] = []
    low_res: dict[str, np.ndarray] = {}
    with np.load(EXPECTED) as expected, Client(official_server.url) as client:
        for case in read_cases():
            predictor = SamPredictor(client)
            predictor.set_image(np.asarray(Image.open(case.file).convert("RGB")))
            points, labels = (np.array(case.points_xy), np.array(case.labels)) if case.labels else (None, None)
            box = None if case.box_xyxy is None else np.array(case.box_xyxy)
            mask_input = low_res[case.refines] if case.refines else None
            masks, scores, logits = predictor.predict(points, labels, box, mask_input, case.multimask)
            low_res[case.name] = logits[[scores.argmax()]]
            same += ious(packed(masks), expected[f"mask/{case.name}"])
            assert scores == pytest.approx(expected[f"scores/{case.name}"], abs=0.05)
    assert np.mean(same) >= MIN_MEAN_IOU
