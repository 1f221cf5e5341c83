"""Waits before retries."""

from __future__ import annotations

import pytest

from mobile_sam_client._retries import MAX_RETRY_WAIT_S, parse_retry_after, retry_wait_s


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
    ids=["seconds", "zero", "date", "negative", "fraction", "not ASCII", "missing"],
)
def test_retry_after_is_parsed_if_it_is_seconds(header, seconds):
    assert parse_retry_after(header) == seconds


@pytest.mark.parametrize(("retry_after", "waited"), [(0, 0), (7, 7), (3600, MAX_RETRY_WAIT_S)])
def test_retry_after_is_kept_up_to_the_maximum(retry_after, waited):
    assert retry_wait_s(4, retry_after) == waited


def test_backoff_doubles_with_jitter_up_to_the_maximum():
    for attempt, longest in ((0, 0.2), (1, 0.4), (4, 3.2), (50, MAX_RETRY_WAIT_S)):
        waits = [retry_wait_s(attempt, None) for _ in range(50)]
        assert all(longest / 2 <= wait <= longest for wait in waits)
        assert len(set(waits)) > 1
