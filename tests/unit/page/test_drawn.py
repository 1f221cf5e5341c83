"""Clicks on masks made by hand: what is sent for them, and what they change."""

import base64
import io

import numpy as np
import pytest

from orchestrator.masks import upsample
from tests.unit.page.formats import decode, iou, rle, run


def disc(x: float, y: float, radius: float, shape: tuple[int, int] = (200, 300)) -> np.ndarray:
    """Return a disc, (H, W) bool."""
    ys, xs = np.mgrid[: shape[0], : shape[1]]
    return np.asarray(np.hypot(xs - x, ys - y) <= radius)


@pytest.mark.parametrize("shape", [(200, 300), (1500, 1000), (40, 30), (3, 2000)], ids=str)
def test_mask_input_is_the_mask_in_the_models_frame(shape):
    height, width = shape
    mask = disc(width / 3, height / 2, max(shape) / 5, shape)
    logits = np.load(io.BytesIO(base64.b64decode(run("maskInput", mask=rle(mask)))))
    assert logits.dtype == np.float32
    assert logits.shape == (256, 256)
    assert set(np.unique(logits)) == {-20, 20}
    frame_hw = int(height * 1024 / max(shape) + 0.5), int(width * 1024 / max(shape) + 0.5)
    assert iou(upsample(logits, frame_hw, shape) > 0, mask) > 0.9


def test_mask_input_of_squashed_weights_fills_the_square():
    mask = disc(100, 100, 60)
    logits = np.load(
        io.BytesIO(base64.b64decode(run("maskInput", mask=rle(mask), isSquashed=True)))
    )
    assert iou(upsample(logits, (1024, 1024), (200, 300)) > 0, mask) > 0.9


LEFT, MIDDLE, RIGHT, STROKE = (
    disc(60, 60, 30),
    disc(120, 60, 35),
    disc(220, 60, 30),
    disc(150, 160, 15),
)
DRAWN = (LEFT | MIDDLE | STROKE) & ~disc(50, 60, 8)
CASES = {
    "a click beside it adds the answer there": (LEFT | RIGHT, [(220, 60, 1)], DRAWN | RIGHT),
    "a click in it adds the answer around it": (LEFT | RIGHT, [(70, 60, 1)], DRAWN | LEFT),
    "a click beside it brings back nothing that was erased": (
        LEFT | MIDDLE | RIGHT,
        [(230, 60, 1)],
        DRAWN | RIGHT,
    ),
    "a negative click removes what is not in the answer there": (
        LEFT,
        [(120, 60, 0)],
        DRAWN & ~(MIDDLE & ~LEFT),
    ),
    "a negative click removes nothing beside it": (LEFT, [(20, 190, 0)], DRAWN),
    "a negative click removes nothing of the answer": (DRAWN, [(120, 60, 0)], DRAWN),
    "clicks of both kinds": (
        LEFT | RIGHT,
        [(220, 60, 1), (150, 160, 0)],
        (DRAWN | RIGHT) & ~STROKE,
    ),
}


def with_clicks(drawn, answer, clicks, **given) -> np.ndarray:
    points = [{"x": x, "y": y, "label": label} for x, y, label in clicks]
    found = run("withClicks", drawn=rle(drawn), answer=rle(answer), clicks=points, **given)
    assert found["score"] is None
    assert found["area"] == decode(found).sum()
    return decode(found)


@pytest.mark.parametrize(("answer", "clicks", "expected"), CASES.values(), ids=CASES.keys())
def test_later_clicks_change_only_the_region_around_them(answer, clicks, expected):
    assert np.array_equal(with_clicks(DRAWN, answer, clicks), expected)


def test_only_the_part_that_was_sent_loses_pixels():
    left = np.arange(300) < 120
    found = with_clicks(DRAWN, LEFT, [(110, 60, 0)], sent=rle(DRAWN & left))
    assert np.array_equal(found, DRAWN & ~(MIDDLE & ~LEFT & left))
