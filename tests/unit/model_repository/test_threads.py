"""Work in shares: all of it, once, in order."""

from __future__ import annotations

import threading

import pytest
from mobile_sam_threads import THREADS, in_shares


@pytest.mark.parametrize("length", [1, 2, 3, 10, 1201])
def test_shares_are_the_whole_in_order(length):
    shares = in_shares(lambda first, past: list(range(first, past)), length)
    assert [place for share in shares for place in share] == list(range(length))
    assert len(shares) == min(THREADS, length)
    assert all(shares)


def test_shares_are_worked_on_at_once():
    meeting = threading.Barrier(THREADS)
    in_shares(lambda first, past: meeting.wait(30), 10)


def test_what_goes_wrong_in_a_share_is_raised():
    with pytest.raises(ZeroDivisionError):
        in_shares(lambda first, past: 1 // first, 10)
