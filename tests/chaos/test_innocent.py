"""Waiting times of a caller who clicks at a fixed rate."""

import pytest

from tests.chaos.callers import Outcome, Outcomes
from tests.chaos.innocent import waits


def test_slow_click_counts_also_for_the_clicks_that_were_due_meanwhile():
    slow, quick, refused = (Outcome(0, *each) for each in ((1.1, 200, "ok"), (0.1, 200, "ok"), (3.0, 503, "busy")))
    assert waits(Outcomes([slow, quick, refused])) == pytest.approx([1.1, 0.9, 0.7, 0.5, 0.3, 0.1, 0.1])
