"""Tables of mask quality, and the clicks behind them."""

from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import quality
from benchmarks.clicks import MAX_CLICKS, Click, clicks_to_reach, next_click
from benchmarks.objects import LabelledObject
from benchmarks.quality import CLICKS, Score, click_until_good, clicks_table, keys_table
from mobile_sam_client import Client


def square(top, left, side, width=None):
    mask = np.zeros((40, 60), bool)
    mask[top : top + side, left : left + (width or side)] = True
    return mask


@pytest.mark.parametrize(
    ("widths", "clicks"),
    [
        pytest.param([9], CLICKS, id="good-at-first"),
        pytest.param([5, 5, 6, 7, 8, 8, 9], 7, id="good-at-last"),
        pytest.param([5], MAX_CLICKS, id="never-good"),
        pytest.param([5, 10], 2, id="nothing-left-to-correct"),
    ],
)
def test_clicks_continue_until_the_mask_is_good(monkeypatch, widths, clicks):
    wanted = square(10, 10, 10)
    answers = (square(10, 10, 10, width) for width in chain(widths, repeat(widths[-1])))
    monkeypatch.setattr(
        quality,
        "ask",
        lambda *_, **__: SimpleNamespace(mask=next(answers), score=0, low_res_mask=0),
    )
    labelled = LabelledObject(
        Path("a.png"), np.zeros((40, 60, 3), np.uint8), wanted, (15, 15), (10, 10, 20, 20)
    )
    score = click_until_good(Client("http://service.test"), labelled)
    assert (len(score.after), score.after[0]) == (clicks, widths[0] / 10)


def test_clicks_table_has_numbers_of_clicks_and_failures():
    scores = [Score([0.8, 0.86, 0.91], score=0.9), Score([0.5] * MAX_CLICKS, score=0.4)]
    lines = [line.replace(" ", "") for line in clicks_table({"some": scores}).splitlines()]
    expected = {
        "|NoC@85|11.00|",
        "|NoC@90|11.50|",
        "|IoU0.90notreachedwith20clicks|1of2|",
        "|mIoUat5clicks|0.705|",
    }
    assert expected < {*lines}


NOTHING, SMALL = square(0, 0, 0), square(2, 2, 5)


@pytest.mark.parametrize(
    ("answer", "wanted", "expected"),
    [
        pytest.param(NOTHING, square(10, 20, 9), Click((24, 14), 1), id="centre-of-missing-pixels"),
        pytest.param(
            SMALL | square(20, 40, 11), SMALL, Click((45, 25), 0), id="centre-of-superfluous-pixels"
        ),
        pytest.param(
            NOTHING,
            SMALL | square(38, 0, 1, 60),
            Click((4, 4), 1),
            id="deepest-rather-than-largest-error",
        ),
        pytest.param(
            NOTHING, square(0, 0, 9), Click((4, 4), 1), id="border-of-the-image-is-a-border"
        ),
        pytest.param(SMALL, SMALL, None, id="mask-is-right"),
    ],
)
def test_next_click_goes_to_the_middle_of_the_error(answer, wanted, expected):
    assert next_click(answer, wanted, []) == expected


@pytest.mark.parametrize(
    ("ious", "clicks"),
    [
        ([0.5, 0.91, 0.8], 2),
        ([0.5] * (MAX_CLICKS - 1) + [0.9], MAX_CLICKS),
        ([0.5] * MAX_CLICKS + [0.9], None),
    ],
    ids=["reached-and-lost-again", "last-click", "one-click-too-late"],
)
def test_clicks_to_reach_counts_up_to_the_first_that_reaches_the_target(ious, clicks):
    assert clicks_to_reach(ious, 0.9) == clicks


def test_keys_table_counts_the_clicks_beside_the_mask_up_to_the_target():
    easy = Score(after=[0.5, 0.6, 0.92], beside=[False, True, False])
    hard = Score(after=[0.1] * MAX_CLICKS, beside=[False] + [True] * (MAX_CLICKS - 1))
    rows = keys_table({"official": [easy, hard]}).splitlines()
    assert rows[-2].split("|")[2].strip() == f"{(1 + MAX_CLICKS - 1) / 2:.2f}"
    assert rows[-1].split("|")[2].strip() == "1.00 (1 of 2)"
