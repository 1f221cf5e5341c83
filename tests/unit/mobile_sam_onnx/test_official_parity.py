"""Parity of the graphs with the official PyTorch predictor, with the official weights on the sample images."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobile_sam_onnx.checkpoint import load_checkpoint
from mobile_sam_onnx.model import build_decoder, build_encoder
from orchestrator import images, pipeline
from orchestrator.masks import upsample
from tests.parity.cases import (
    EXPECTED,
    Array,
    Case,
    channel_statistics,
    ious,
    packed,
    read_cases,
    sampled_embedding,
    sampled_logits,
)
from tests.unit.mobile_sam_onnx.conftest import session

CASES = {case.name: case for case in read_cases()}
MAX_RELATIVE_L2 = 1e-3
MAX_SCORE_DIFFERENCE = 1e-3
MIN_IOU = 0.995
"""A few pixels on the outline, with logits near zero, may differ."""


@pytest.fixture(scope="module")
def expected() -> dict[str, Array]:
    with np.load(EXPECTED) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def encode(official_checkpoint: Path) -> Any:
    """Function that returns an image's embedding (1, 64, 64, 256), size_hw in the encoder's frame, and size_hw."""
    encoder = session(build_encoder(load_checkpoint(official_checkpoint)))

    @cache
    def run(file: Path) -> Any:
        pixels = images.decode(images.open_image(file.read_bytes(), 10**8))
        frame = images.to_frame(pixels)
        (embedding,) = encoder(images=frame.pixels[None], sizes_hw=np.array([frame.size_hw], np.int32))
        return embedding.copy(), frame.size_hw, pixels.shape[:2]

    return run


@pytest.fixture(scope="module")
def answer(official_checkpoint: Path, encode: Any) -> Any:
    """Function that returns low-resolution masks (K, 256, 256), scores (K,) and masks (K, H, W) bool of a case."""
    decoder = session(build_decoder(load_checkpoint(official_checkpoint)))

    @cache
    def run(case: Case) -> Any:
        embedding, frame_hw, size_hw = encode(case.file)
        corners = [case.box_xyxy[:2], case.box_xyxy[2:]] if case.box_xyxy else []
        points = np.array([case.points_xy + corners], np.float32)
        kinds = np.array([case.labels + [2, 3] * bool(corners)], np.int32)
        coords, labels = pipeline.points_to_frame(points, kinds, size_hw, frame_hw)
        earlier, has_mask = pipeline.mask_inputs(None, None, 1)
        if case.refines:
            low_res, scores, _ = run(CASES[case.refines])
            earlier, has_mask = low_res[scores.argmax()][None, None], np.ones(1, np.float32)
        low_res, scores = decoder(
            image_embeddings=embedding,
            point_coords=coords,
            point_labels=labels,
            mask_input=earlier,
            has_mask_input=has_mask,
        )
        chosen = slice(1, 4) if case.multimask else slice(0, 1)
        low_res, scores = low_res[0, chosen], scores[0, chosen]
        return low_res, scores, np.stack([upsample(mask, frame_hw, size_hw) > 0 for mask in low_res])

    return run


def relative_l2(found: Array, wanted: Array) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("image", ["balloons", "desk", "still-life"])
def test_embedding_matches_the_official_predictor(image, expected, encode):
    (file,) = {case.file for case in CASES.values() if case.image == image}
    embedding = encode(file)[0][0].transpose(2, 0, 1).astype(np.float32)
    assert relative_l2(sampled_embedding(embedding), expected[f"embedding/{image}"]) <= MAX_RELATIVE_L2
    assert relative_l2(channel_statistics(embedding), expected[f"channels/{image}"]) <= MAX_RELATIVE_L2


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_masks_match_the_official_predictor(case, expected, answer):
    low_res, scores, masks = answer(case)
    assert relative_l2(sampled_logits(low_res), expected[f"logits/{case.name}"]) <= MAX_RELATIVE_L2
    np.testing.assert_allclose(scores, expected[f"scores/{case.name}"], atol=MAX_SCORE_DIFFERENCE, rtol=0)
    assert min(ious(packed(low_res > 0), expected[f"low_res/{case.name}"])) >= MIN_IOU
    assert min(ious(packed(masks), expected[f"mask/{case.name}"])) >= MIN_IOU
