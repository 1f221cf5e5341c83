"""Masks over HTTP match the official predictor's, with the official weights and the machine's
default engine.
"""

import numpy as np
import pytest
from PIL import Image

from harness import Server
from mobile_sam_client import Client
from mobile_sam_client.compat import SamPredictor
from tests.parity.cases import EXPECTED, ious, packed, read_cases

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
MIN_MEAN_IOU = 0.98
"""Minimum for every engine that `auto` may choose."""


def test_compat_predictor_matches_the_official_predictor(
    official_server: Server, record_property
) -> None:
    same: list[float] = []
    low_res: dict[str, np.ndarray] = {}
    with np.load(EXPECTED) as expected, Client(official_server.url) as client:
        weights = client.info().weights
        assert weights is not None
        assert weights.name == "official"
        for case in read_cases():
            predictor = SamPredictor(client)
            predictor.set_image(np.asarray(Image.open(case.file).convert("RGB")))
            points, labels = (
                (np.array(case.points_xy), np.array(case.labels)) if case.labels else (None, None)
            )
            box = None if case.box_xyxy is None else np.array(case.box_xyxy)
            mask_input = low_res[case.refines] if case.refines else None
            masks, scores, logits = predictor.predict(
                points, labels, box, mask_input, case.multimask
            )
            low_res[case.name] = logits[[scores.argmax()]]
            same += ious(packed(masks), expected[f"mask/{case.name}"])
            assert scores == pytest.approx(expected[f"scores/{case.name}"], abs=0.05)
    record_property(
        "mean IoU with the official predictor's masks",
        f"{np.mean(same):.4f}, worst {min(same):.4f}",
    )
    assert np.mean(same) >= MIN_MEAN_IOU
