"""Figures of replicas under load, from made-up calls."""

import math

import pytest

from benchmarks.annotators import Annotators, Call
from benchmarks.scale import failures, p95, recovery_s


def click(began, seconds, point=0, failed=0) -> Call:
    return Call(began, began + seconds, 0, point, failed, False, 0, "", "builtin", "")


@pytest.mark.parametrize(
    ("slow", "expected"),
    [
        pytest.param({}, 0, id="never slow"),
        pytest.param({30: 3, 31: 3, 32: 3, 33: 3}, 0, id="few slow clicks of many"),
        pytest.param(dict.fromkeys(range(5), 5), 9, id="slow at first"),
        pytest.param(dict.fromkeys((*range(5), *range(70, 80, 2)), 3), 81, id="slow again"),
    ],
)
def test_recovery_ends_with_the_last_slow_clicks_of_many(slow, expected):
    calls = [click(100 + at, slow.get(at, 0.1)) for at in range(100)]
    assert recovery_s(calls[::-1], 100, 1) == pytest.approx(expected)


def test_uploads_are_no_clicks_but_their_failures_count():
    calls = [click(0, 9, point=-1, failed=1), *(click(1 + at, 1 + at) for at in range(20))]
    assert p95(calls) == pytest.approx(19)
    assert math.isnan(p95(calls[:1]))
    assert failures(calls) == 1


def test_load_has_the_calls_that_an_event_touched():
    calls = [click(at, 1.5) for at in range(10)]
    load = Annotators("", {"images": 0}, calls, {"kill": (4, 5)})
    assert load.during("kill") == calls[3:5]
