"""Waits before the next try."""

from __future__ import annotations

import pytest

from mobile_sam_client._retries import LONGEST_WAIT, retry_after, seconds_to_wait


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("3", 3.0),
        (" 0 ", 0.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("-1", None),
        ("1.5", None),
        ("²", None),
        (None, None),
    ],
    ids=["seconds", "none", "a date", "before now", "half", "no digit", "left out"],
)
def test_a_header_says_seconds_or_nothing(header, seconds):
    assert retry_after(header) == seconds


@pytest.mark.parametrize(("asked", "waited"), [(0, 0), (7, 7), (3600, LONGEST_WAIT)])
def test_the_service_says_how_long_within_bounds(asked, waited):
    assert seconds_to_wait(4, asked) == waited


def test_without_a_word_waits_double_are_spread_and_end():
    for attempt, longest in ((0, 0.2), (1, 0.4), (4, 3.2), (50, LONGEST_WAIT)):
        waits = [seconds_to_wait(attempt, None) for _ in range(50)]
        assert all(longest / 2 <= wait <= longest for wait in waits)
        assert len(set(waits)) > 1
