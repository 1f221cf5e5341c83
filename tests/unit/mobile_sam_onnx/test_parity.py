"""Parity of the graphs with the official PyTorch predictor: with its weights, and with random ones."""

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from mobile_sam_onnx.checkpoint import load_checkpoint
from mobile_sam_onnx.model import build_decoder, build_encoder
from orchestrator import images, pipeline
from orchestrator.masks import upsample
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
from tests.unit.mobile_sam_onnx.conftest import session

CASES = {case.name: case for case in read_cases()}
RANDOM_CASES = [
    (image, case)
    for image in ("dog.jpg", "car_2241x1500.jpg", "neon_portrait.png", "horses_small.png")
    for case in ("point", "refine", "pos_neg", "box", "box_point", "three_points")
]
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


class Graphs:
    """Both graphs with the weights of a checkpoint."""

    def __init__(self, checkpoint: Path) -> None:
        state = load_checkpoint(checkpoint)
        self._encoder, self._decoder = session(build_encoder(state)), session(build_decoder(state))
        self.encode = cache(self._encode)

    def _encode(self, file: Path) -> tuple[Array, tuple[int, int], tuple[int, int]]:
        """Return an image's embedding (1, 64, 64, 256), size_hw in the encoder's frame, and size_hw."""
        pixels = images.decode(images.open_image(file.read_bytes(), 10**8))
        frame = images.to_frame(pixels)
        (embedding,) = self._encoder(images=frame.pixels[None], sizes_hw=np.array([frame.size_hw], np.int32))
        return embedding.copy(), frame.size_hw, (pixels.shape[0], pixels.shape[1])

    def embedding(self, file: Path) -> Array:
        """Return an image's embedding, (256, 64, 64) float32."""
        embedding: Array = self.encode(file)[0][0].transpose(2, 0, 1).astype(np.float32)
        return embedding

    def answer(
        self,
        file: Path,
        points_xy: list[list[float]],
        labels: list[int],
        box_xyxy: list[float] | None,
        mask_input: Array | None = None,
        *,
        multimask: bool,
    ) -> Answer:
        embedding, frame_hw, size_hw = self.encode(file)
        corners = [box_xyxy[:2], box_xyxy[2:]] if box_xyxy else []
        points = np.array([points_xy + corners], np.float32)
        kinds = np.array([labels + [2, 3] * bool(corners)], np.int32)
        coords, kinds_in_frame = pipeline.points_to_frame(points, kinds, size_hw, frame_hw)
        earlier, has_mask = pipeline.mask_inputs(None, None, 1)
        if mask_input is not None:
            earlier, has_mask = mask_input[None, None].astype(np.float32), np.ones(1, np.float32)
        low_res, scores = self._decoder(
            image_embeddings=embedding,
            point_coords=coords,
            point_labels=kinds_in_frame,
            mask_input=earlier,
            has_mask_input=has_mask,
        )
        chosen = slice(1, 4) if multimask else slice(0, 1)
        masks = np.stack([upsample(mask, frame_hw, size_hw) > 0 for mask in low_res[0, chosen]])
        return Answer(low_res[0, chosen], scores[0, chosen], masks)


def assert_close(found: Array, wanted: Array, maximum: float = MAX_RELATIVE_L2) -> None:
    """Check the L2 distance relative to the length of the wanted values."""
    wanted = wanted.astype(np.float64)
    assert np.linalg.norm(found - wanted) <= maximum * np.linalg.norm(wanted)


@pytest.fixture(scope="module")
def official(official_checkpoint: Path) -> Graphs:
    return Graphs(official_checkpoint)


@pytest.fixture(scope="module")
def expected() -> dict[str, Array]:
    with np.load(EXPECTED) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def answer_of(official: Graphs) -> Any:
    """Function that returns the answer of a case."""

    @cache
    def run(name: str) -> Answer:
        case, mask_input = CASES[name], None
        if case.refines:
            earlier = run(case.refines)
            mask_input = earlier.low_res[earlier.scores.argmax()]
        prompt = (case.file, case.points_xy, case.labels, case.box_xyxy, mask_input)
        return official.answer(*prompt, multimask=case.multimask)

    return run


@pytest.mark.parametrize("image", ["balloons", "desk", "still-life"])
def test_embedding_matches_the_official_predictor(image, official, expected):
    (file,) = {case.file for case in CASES.values() if case.image == image}
    embedding = official.embedding(file)
    assert_close(sampled_embedding(embedding), expected[f"embedding/{image}"])
    assert_close(channel_statistics(embedding), expected[f"channels/{image}"])


@pytest.mark.parametrize("name", CASES)
def test_masks_match_the_official_predictor(name, expected, answer_of):
    low_res, scores, masks = answer_of(name)
    assert_close(sampled_logits(low_res), expected[f"logits/{name}"])
    np.testing.assert_allclose(scores, expected[f"scores/{name}"], atol=MAX_SCORE_DIFFERENCE, rtol=0)
    assert min(ious(packed(low_res > 0), expected[f"low_res/{name}"])) >= MIN_IOU
    assert min(ious(packed(masks), expected[f"mask/{name}"])) >= MIN_IOU


@pytest.fixture(scope="module")
def random(shared: Path) -> Graphs:
    return Graphs(shared / "reference/mobile_sam_seed7.pt")


@pytest.fixture(scope="module")
def random_expected(shared: Path) -> dict[str, Array]:
    with np.load(shared / "reference/expected.npz") as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def random_cases(shared: Path) -> dict[tuple[str, str], dict[str, Any]]:
    return {(case["image"], case["case"]): case for case in json.loads((shared / "reference/cases.json").read_text())}


def test_every_reference_case_is_tested(random_cases):
    assert sorted(random_cases) == sorted(RANDOM_CASES)


def test_embeddings_with_random_weights_match(shared, random, random_expected):
    names = [key.removeprefix("embedding/") for key in random_expected if key.startswith("embedding/")]
    assert names
    for name in names:
        assert_close(random.embedding(shared / "images" / name), random_expected[f"embedding/{name}"], 2e-3)


@pytest.mark.parametrize(("image", "name"), RANDOM_CASES, ids=map("/".join, RANDOM_CASES))
def test_masks_with_random_weights_match(image, name, *, shared, random, random_cases, random_expected):
    case, key = random_cases[image, name], f"{image}/{name}"
    mask_input = random_expected[case["mask_input"]][case["mask_index"]] if "mask_input" in case else None
    prompt = (shared / "images" / image, case["points"] or [], case["labels"] or [], case["box"], mask_input)
    low_res, scores, masks = random.answer(*prompt, multimask=case["multimask"])
    assert_close(low_res, random_expected[f"low_res/{key}"])
    np.testing.assert_allclose(scores, random_expected[f"iou/{key}"], atol=MAX_SCORE_DIFFERENCE, rtol=0)
    np.testing.assert_allclose(masks.mean(axis=(1, 2)), random_expected[f"area/{key}"], atol=3e-3, rtol=0)
