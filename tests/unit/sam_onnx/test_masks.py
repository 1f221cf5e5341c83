"""Masks made in the decoder's graph: those that the orchestrator makes of the same logits."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import spox
import spox.opset.ai.onnx.v20 as op
from spox import Tensor

from orchestrator.masks import area_and_box, upsample
from sam_onnx.descriptor import LONGEST_SIDE, SQUASH
from sam_onnx.masks import with_masks
from tests.unit.sam_onnx.conftest import session

PROMPTS, MASKS = 3, 4
NO_FILTER = {"pred_iou_thresh": -np.inf, "stability_score_thresh": 0.0}


def logits_of_blobs(seed: int) -> np.ndarray:
    """Return smooth logits like a decoder's, (N, 4, 256, 256) float32."""
    random = np.random.default_rng(seed)
    waves = random.normal(0, 1, (PROMPTS, MASKS, 4, 2))
    y, x = np.mgrid[0:256, 0:256] / 256
    logits = np.zeros((PROMPTS, MASKS, 256, 256))
    for index in range(waves.shape[2]):
        down, across = (waves[:, :, index, axis, None, None] for axis in (0, 1))
        logits += 6 * np.sin(7 * (down * y + across * x) + index)
    return logits.astype(np.float32)


def stand_in_decoder() -> Any:
    """Return a graph that returns its inputs, as a decoder."""
    logits = spox.argument(Tensor(np.float32, ("N", MASKS, 256, 256)))
    scores = spox.argument(Tensor(np.float32, ("N", MASKS)))
    outputs = {"low_res_masks": op.identity(logits), "iou_predictions": op.identity(scores)}
    return spox.build({"given_logits": logits, "given_scores": scores}, outputs)


@pytest.fixture(scope="module", params=[LONGEST_SIDE, SQUASH])
def resize(request) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def make(resize) -> Callable[..., dict[str, np.ndarray]]:
    """Function that runs the graph."""
    model = with_masks(stand_in_decoder(), resize)
    names = [output.name for output in model.graph.output]
    run = session(model)

    def made(logits, scores, wanted, frame_hw, size_hw, **values: float) -> dict[str, np.ndarray]:
        values = {"mask_threshold": 0.0, "stability_score_offset": 1.0, **NO_FILTER, **values}
        float64 = ("pred_iou_thresh", "stability_score_thresh")
        inputs = {
            name: np.array([value], np.float64 if name in float64 else np.float32)
            for name, value in values.items()
        }
        answers = run(
            given_logits=logits,
            given_scores=scores,
            wanted_masks=np.array(wanted, np.int64),
            frame_hw=np.array(frame_hw or (256, 256), np.int32),
            size_hw=np.array(size_hw, np.int32),
            **inputs,
        )
        return dict(zip(names, answers, strict=True))

    return made


@pytest.mark.parametrize(
    ("size_hw", "frame_hw"),
    [
        pytest.param((1200, 1800), (683, 1024), id="photograph", marks=pytest.mark.slow),
        pytest.param((1801, 1203), (1024, 684), id="portrait of odd sizes", marks=pytest.mark.slow),
        pytest.param((100, 77), (1024, 788), id="small"),
        pytest.param((1, 1), (1024, 1024), id="a pixel"),
        pytest.param((3, 2000), (2, 1024), id="a strip"),
    ],
)
def test_masks_are_those_of_the_orchestrator(make, resize, size_hw, frame_hw):
    valid_hw = None if resize == SQUASH else frame_hw
    logits = logits_of_blobs(size_hw[0])
    scores = np.arange(PROMPTS * MASKS, dtype=np.float32).reshape(PROMPTS, MASKS) / 10
    made = make(logits, scores, [1, 2, 3], valid_hw, size_hw, mask_threshold=0.25)
    assert made["is_finite"].tolist() == [True]
    assert made["mask_indices"].tolist() == list(range(9))
    assert made["scores"].tolist() == scores[:, 1:].ravel().tolist()
    assert np.array_equal(made["mask_logits"], logits[:, 1:].reshape(-1, 256, 256))
    assert made["mask_bits"].shape == (9, size_hw[0], (size_hw[1] + 7) // 8)
    for index, low_res in enumerate(logits[:, 1:].reshape(-1, 256, 256)):
        expected = upsample(low_res, valid_hw, size_hw)
        found = np.unpackbits(made["mask_bits"][index], axis=1, count=size_hw[1]).view(bool)
        # OpenCV and the graph add in different orders.
        differs = found != (expected > 0.25)
        assert (np.abs(expected[differs] - 0.25) < 1e-5).all()
        assert differs.sum() <= 3
        area, box = area_and_box(found)
        assert (made["areas"][index], made["boxes_xyxy"][index].tolist()) == (area, box)
        assert np.array_equal(
            np.unpackbits(made["column_bits"][index], axis=1, count=size_hw[0]).T, found
        )
        assert not np.unpackbits(made["column_bits"][index], axis=1)[:, size_hw[0] :].any()
        assert not np.unpackbits(made["mask_bits"][index], axis=1)[:, size_hw[1] :].any()
        larger = np.count_nonzero(expected > -1)
        stability = np.count_nonzero(expected > 1) / larger if larger else 0
        assert made["stability_scores"][index] == pytest.approx(stability, abs=3 / max(larger, 1))


def test_masks_below_a_threshold_are_left_out(make):
    logits, scores = logits_of_blobs(1), np.zeros((PROMPTS, MASKS), np.float32)
    scores[:, 2] = [0.5, 0.9, 0.88]
    size = [2, 0], (683, 1024), (120, 180)
    by_score = make(logits, scores, *size, pred_iou_thresh=float(np.float32(0.88)))
    assert by_score["mask_indices"].tolist() == [2]
    assert by_score["scores"].tolist() == [np.float32(0.9)]

    everything = make(logits, scores, *size)
    threshold = float(np.median(everything["stability_scores"]))
    by_stability = make(logits, scores, *size, stability_score_thresh=threshold)
    left = np.flatnonzero(everything["stability_scores"] >= threshold)
    assert 0 < len(left) < len(everything["scores"])
    assert by_stability["mask_indices"].tolist() == left.tolist()
    for name in (
        "scores",
        "stability_scores",
        "areas",
        "boxes_xyxy",
        "mask_bits",
        "column_bits",
        "mask_logits",
    ):
        assert np.array_equal(by_stability[name], everything[name][left])


def test_no_mask_may_be_left(make):
    logits, scores = logits_of_blobs(2), np.zeros((PROMPTS, MASKS), np.float32)
    made = make(logits, scores, [0], (683, 1024), (120, 180), pred_iou_thresh=1.0)
    assert [len(made[name]) for name in ("mask_indices", "mask_bits", "areas", "boxes_xyxy")] == [
        0
    ] * 4
    assert made["mask_bits"].shape == (0, 120, 23)


def test_empty_mask_has_no_box_and_no_stability(make):
    logits, scores = np.full((PROMPTS, MASKS, 256, 256), -7, np.float32), np.ones((PROMPTS, MASKS))
    made = make(logits, scores.astype(np.float32), [0], (683, 1024), (120, 180))
    assert made["areas"].tolist() == [0] * PROMPTS
    assert made["boxes_xyxy"].tolist() == [[0] * 4] * PROMPTS
    assert made["stability_scores"].tolist() == [0] * PROMPTS


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", ["logits", "scores"])
def test_values_that_are_not_finite_are_reported(make, place, value):
    logits, scores = logits_of_blobs(3), np.zeros((PROMPTS, MASKS), np.float32)
    (logits if place == "logits" else scores)[1, 3] = value
    size = (683, 1024), (12, 18)
    assert make(logits, scores, [1, 2, 3], *size)["is_finite"].tolist() == [False]
    assert make(logits, scores, [0], *size)["is_finite"].tolist() == [True]
