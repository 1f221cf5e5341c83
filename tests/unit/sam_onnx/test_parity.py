"""Parity of the graphs with the official PyTorch predictor and its weights."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from orchestrator import images, networks
from orchestrator.masks import upsample
from sam_onnx.checkpoint import load_checkpoint
from sam_onnx.model import build
from sam_onnx.random_weights import mobile_sam_shapes
from tests.parity.cases import (
    EXPECTED,
    Array,
    channel_statistics,
    ious,
    packed,
    read_cases,
    sampled_embedding,
    sampled_logits,
)
from tests.unit.sam_onnx.conftest import decode, session

CASES = {case.name: case for case in read_cases()}
MAX_RELATIVE_L2 = 1e-3
MAX_SCORE_DIFFERENCE = 1e-3
MIN_IOU = 0.995
"""A few pixels on the outline, with logits near zero, may differ."""


class Answer(NamedTuple):
    """Masks of a prompt."""

    low_res: Array
    """(K, 256, 256) float32 logits."""
    scores: Array
    masks: Array
    """(K, H, W) bool."""


def assert_close(found: Array, wanted: Array) -> None:
    """Check the L2 distance relative to the length of the wanted values."""
    wanted = wanted.astype(np.float64)
    assert np.linalg.norm(found - wanted) <= MAX_RELATIVE_L2 * np.linalg.norm(wanted)


@pytest.fixture(scope="module")
def expected() -> dict[str, Array]:
    with np.load(EXPECTED) as arrays:
        return dict(arrays)


class Official:
    """The graphs with the official weights."""

    def __init__(self, checkpoint: Path) -> None:
        self._encoder, self._decoder = map(session, build(load_checkpoint(checkpoint))[1])
        self.encode, self.answer = cache(self._encode), cache(self._answer)

    def _encode(self, file: Path) -> tuple[Array, tuple[int, int], tuple[int, int]]:
        """Return an image's embedding (1, 64, 64, 256), size_hw in the encoder's frame, and
        size_hw.
        """
        pixels, _ = images.decode(images.open_image(file.read_bytes(), 10**8))
        frame = images.LONGEST_SIDE.frame(pixels)
        (embedding,) = self._encoder(
            images=frame.pixels[None], sizes_hw=np.array([frame.size_hw], np.int32)
        )
        return embedding.copy(), frame.size_hw, (pixels.shape[0], pixels.shape[1])

    def _answer(self, name: str) -> Answer:
        case = CASES[name]
        embedding, frame_hw, size_hw = self.encode(case.file)
        corners = [case.box_xyxy[:2], case.box_xyxy[2:]] if case.box_xyxy else []
        points = np.array([case.points_xy + corners], np.float32)
        kinds = np.array([case.labels + [2, 3] * bool(corners)], np.int32)
        coords, labels = networks.points_to_frame(points, kinds, size_hw, frame_hw)
        earlier = self.answer(case.refines) if case.refines else None
        refined = (earlier.low_res[earlier.scores.argmax()][None, None], [1]) if earlier else ()
        low_res, scores = decode(self._decoder, embedding, coords, labels, *refined)
        chosen = slice(1, 4) if case.multimask else slice(0, 1)
        masks = np.stack([upsample(mask, frame_hw, size_hw) > 0 for mask in low_res[0, chosen]])
        return Answer(low_res[0, chosen], scores[0, chosen], masks)


@pytest.fixture(scope="module")
def official(official_checkpoint: Path) -> Official:
    return Official(official_checkpoint)


def test_random_weights_have_the_published_models_keys_and_shapes(official_checkpoint):
    published = {key: tensor.shape for key, tensor in load_checkpoint(official_checkpoint).items()}
    assert mobile_sam_shapes().items() <= published.items()


@pytest.mark.parametrize("image", ["balloons", "desk", "still-life"])
def test_embedding_matches_the_official_predictor(image, official, expected):
    (file,) = {case.file for case in CASES.values() if case.image == image}
    embedding = official.encode(file)[0][0].transpose(2, 0, 1).astype(np.float32)
    assert_close(sampled_embedding(embedding), expected[f"embedding/{image}"])
    assert_close(channel_statistics(embedding), expected[f"channels/{image}"])


@pytest.mark.parametrize("name", CASES)
def test_masks_match_the_official_predictor(name, official, expected):
    low_res, scores, masks = official.answer(name)
    assert_close(sampled_logits(low_res), expected[f"logits/{name}"])
    np.testing.assert_allclose(
        scores, expected[f"scores/{name}"], atol=MAX_SCORE_DIFFERENCE, rtol=0
    )
    assert min(ious(packed(low_res > 0), expected[f"low_res/{name}"])) >= MIN_IOU
    assert min(ious(packed(masks), expected[f"mask/{name}"])) >= MIN_IOU
