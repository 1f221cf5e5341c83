"""Parity of the graphs with the official PyTorch predictor, with the same random weights."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from mobile_sam_onnx.checkpoint import load_checkpoint
from mobile_sam_onnx.model import build_decoder, build_encoder
from tests.unit.mobile_sam_onnx.conftest import session

CASES = [
    (image, case)
    for image in ("dog.jpg", "car_2241x1500.jpg", "neon_portrait.png", "horses_small.png")
    for case in ("point", "refine", "pos_neg", "box", "box_point", "three_points")
]


@pytest.fixture(scope="module")
def expected(shared: Path) -> Any:
    with np.load(shared / "reference/expected.npz") as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def cases(shared: Path) -> Any:
    return {(case["image"], case["case"]): case for case in json.loads((shared / "reference/cases.json").read_text())}


@pytest.fixture(scope="module")
def state(shared: Path) -> Any:
    return load_checkpoint(shared / "reference/mobile_sam_seed7.pt")


@pytest.fixture(scope="module")
def answer(encode: Any, expected: Any, state: Any) -> Any:
    """Function that returns masks (K, 256, 256), scores (K,) and areas (K,) of a case."""
    decode = session(build_decoder(state))

    def run(case: dict[str, Any]) -> Any:
        embedding, scaled_hw, size_hw = encode(case["image"])
        points, labels = list(case["points"] or []), list(case["labels"] or [])
        if case["box"]:
            points, labels = [*points, case["box"][:2], case["box"][2:]], [*labels, 2, 3]
        coords = np.array(points, np.float32) * np.array([scaled_hw[1] / size_hw[1], scaled_hw[0] / size_hw[0]])
        if not case["box"]:
            coords, labels = np.concatenate([coords, [[0, 0]]]), [*labels, -1]
        refined = "mask_input" in case
        earlier = expected[case["mask_input"]][case["mask_index"]] if refined else np.zeros((256, 256))
        masks, scores = decode(
            image_embeddings=embedding,
            point_coords=coords[None].astype(np.float32),
            point_labels=np.array([labels], np.float32),
            mask_input=earlier[None, None].astype(np.float32),
            has_mask_input=np.array([refined], np.float32),
        )
        chosen = slice(1, 4) if case["multimask"] else slice(0, 1)
        return masks[0, chosen], scores[0, chosen], areas(masks[0, chosen], scaled_hw, size_hw)

    return run


@pytest.fixture(scope="module")
def encode(shared: Path, state: Any) -> Any:
    """Function that returns an image's embedding (1, 64, 64, 256), size_hw in the 1024-frame, and size_hw."""
    encoder = session(build_encoder(state))

    @cache
    def run(name: str) -> Any:
        image = Image.open(shared / "images" / name).convert("RGB")
        scale = 1024 / max(image.size)
        width, height = (int(side * scale + 0.5) for side in image.size)
        padded = np.full((1, 1024, 1024, 3), 77, np.uint8)
        padded[0, :height, :width] = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))
        (embedding,) = encoder(images=padded, sizes_hw=np.array([[height, width]], np.int32))
        return embedding, (height, width), image.size[::-1]

    return run


def relative_l2(answer: npt.NDArray[Any], expected: npt.NDArray[Any]) -> float:
    wanted = expected.astype(np.float64)
    return float(np.linalg.norm(answer - wanted) / np.linalg.norm(wanted))


def areas(logits: npt.NDArray[Any], scaled_hw: tuple[int, int], size_hw: tuple[int, int]) -> list[float]:
    """Return the part of the image that each mask (K, 256, 256) covers after the predictor's up-sampling."""
    shares = []
    for mask in logits:
        large = cv2.resize(mask, (1024, 1024), interpolation=cv2.INTER_LINEAR)[: scaled_hw[0], : scaled_hw[1]]
        shares.append(float(np.mean(cv2.resize(large, size_hw[::-1], interpolation=cv2.INTER_LINEAR) > 0)))
    return shares


def test_every_reference_case_is_tested(cases: Any) -> None:
    assert sorted(cases) == sorted(CASES)


def test_embeddings_match(expected: Any, encode: Any) -> None:
    names = [key.removeprefix("embedding/") for key in expected if key.startswith("embedding/")]
    assert names
    for name in names:
        assert relative_l2(encode(name)[0][0].transpose(2, 0, 1), expected[f"embedding/{name}"]) <= 2e-3


@pytest.mark.parametrize(("image", "name"), CASES, ids=map("/".join, CASES))
def test_masks_and_scores_match(image: str, name: str, cases: Any, expected: Any, answer: Any) -> None:
    key = f"{image}/{name}"
    masks, scores, shares = answer(cases[image, name])
    assert relative_l2(masks, expected[f"low_res/{key}"]) <= 1e-3
    np.testing.assert_allclose(scores, expected[f"iou/{key}"], atol=1e-3, rtol=0)
    np.testing.assert_allclose(shares, expected[f"area/{key}"], atol=3e-3, rtol=0)
