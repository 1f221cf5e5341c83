"""Tables of mask quality, and the clicks behind them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import quality
from benchmarks.clicks import MAX_CLICKS, Click, clicks_to_reach, next_click
from benchmarks.objects import LabelledObject
from benchmarks.quality import CLICKS, Prediction, Score, click_until_good, clicks_table, iou_table
from mobile_sam_client import Client

CLIENT = Client("http://service.test")
"""Never sent: `ask` is replaced."""


@pytest.fixture
def labelled() -> LabelledObject:
    """Return a square of 100 pixels in an image of 1,200."""
    mask = np.zeros((30, 40), bool)
    mask[10:20, 10:20] = True
    return LabelledObject(Path("square.png"), np.zeros((30, 40, 3), np.uint8), mask, (15, 15), (10, 10, 20, 20))


class Service:
    """Fake service: click n selects `widths[n]` columns of the object; records the prompts."""

    def __init__(self, widths: list[int]) -> None:
        self.widths = widths
        self.prompts: list[dict[str, Any]] = []

    def __call__(self, _client: Client, _image: Path, **prompt: Any) -> Prediction:
        self.prompts.append(prompt)
        mask = np.zeros((1, 30, 40), bool)
        mask[0, 10:20, 10 : 10 + self.widths[min(len(self.prompts), len(self.widths)) - 1]] = True
        return Prediction(mask, [0.5], [f"low {len(self.prompts)}"])


@pytest.mark.parametrize(
    ("widths", "clicks"),
    [
        pytest.param([9], CLICKS, id="good-at-first"),
        pytest.param([5, 5, 6, 7, 8, 8, 9], 7, id="good-at-last"),
        pytest.param([5], MAX_CLICKS, id="never-good"),
        pytest.param([5, 10], 2, id="nothing-left-to-correct"),
    ],
)
def test_clicks_continue_until_the_mask_is_good(monkeypatch, labelled, widths, clicks):
    service = Service(widths)
    monkeypatch.setattr(quality, "ask", service)
    score = click_until_good(CLIENT, labelled)
    assert len(score.after) == len(service.prompts) == clicks
    assert score.after[0] == widths[0] / 10


def test_each_click_refines_the_previous_mask(monkeypatch, labelled):
    service = Service([5])
    monkeypatch.setattr(quality, "ask", service)
    click_until_good(CLIENT, labelled)
    first, second, third = service.prompts[:3]
    assert first == {"pos_coords": [(15, 15)], "labels": [1]}
    assert (second["mask_input"], third["mask_input"]) == ("low 1", "low 2")
    assert third["pos_coords"][:2] == second["pos_coords"]
    assert third["labels"] == [1, 1, 1]


def test_iou_table_has_means_and_shares_by_prompt():
    text = iou_table({"one": [{"box": 0.4}, {"box": 0.8}], "two": [{"box": 1.0}, {"box": 0.6}]})
    assert text.splitlines()[-1].replace(" ", "") == "|box|0.600|50%|50%|0.800|100%|50%|"


def test_clicks_table_has_numbers_of_clicks_and_failures():
    scores = [Score([0.8, 0.86, 0.91], score=0.9), Score([0.5] * MAX_CLICKS, score=0.4)]
    lines = [line.replace(" ", "") for line in clicks_table({"some": scores}).splitlines()]
    assert "|NoC@85|11.00|" in lines
    assert "|NoC@90|11.50|" in lines
    assert "|IoU0.90notreachedwith20clicks|1of2|" in lines
    assert f"|mIoUat5clicks|{(0.91 + 0.5) / 2:.3f}|" in lines


def square(top, left, side):
    mask = np.zeros((40, 60), bool)
    mask[top : top + side, left : left + side] = True
    return mask


NOTHING, TARGET = square(0, 0, 0), square(2, 2, 5)
LINE = np.zeros((40, 60), bool)
LINE[38] = True  # 60 pixels, one deep


@pytest.mark.parametrize(
    ("answer", "wanted", "expected"),
    [
        pytest.param(NOTHING, square(10, 20, 9), Click((24, 14), 1), id="centre-of-missing-pixels"),
        pytest.param(TARGET | square(20, 40, 11), TARGET, Click((45, 25), 0), id="centre-of-superfluous-pixels"),
        pytest.param(NOTHING, TARGET | LINE, Click((4, 4), 1), id="deepest-rather-than-largest-error"),
        pytest.param(NOTHING, square(0, 0, 9), Click((4, 4), 1), id="border-of-the-image-is-a-border"),
        pytest.param(TARGET, TARGET, None, id="mask-is-right"),
    ],
)
def test_next_click_goes_to_the_middle_of_the_error(answer, wanted, expected):
    assert next_click(answer, wanted, []) == expected


def test_next_click_does_not_repeat_a_click():
    wanted = square(10, 20, 3)
    again = next_click(NOTHING, wanted, [Click((21, 11), 1)])
    assert again is not None
    assert again.point_xy != (21, 11)
    assert wanted[int(again.point_xy[1]), int(again.point_xy[0])]


@pytest.mark.parametrize(
    ("ious", "clicks"),
    [
        pytest.param([0.5, 0.89, 0.9, 0.95], 3, id="third-click"),
        pytest.param([0.5, 0.91, 0.8], 2, id="reached-and-lost-again"),
        pytest.param([0.5, 0.6], None, id="not-reached"),
        pytest.param([0.5] * (MAX_CLICKS - 1) + [0.9], MAX_CLICKS, id="last-click"),
        pytest.param([0.5] * MAX_CLICKS + [0.9], None, id="one-click-too-late"),
    ],
)
def test_clicks_to_reach_counts_up_to_the_first_that_reaches_the_target(ious, clicks):
    assert clicks_to_reach(ious, 0.9) == clicks
