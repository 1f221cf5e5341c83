"""Work on ranges in several threads."""

from __future__ import annotations

import threading

import pytest

from orchestrator.threads import THREADS, map_ranges


@pytest.mark.parametrize("length", [1, 2, 3, 10, 1201])
def test_ranges_cover_the_length_in_order(length):
    ranges = map_ranges(lambda start, stop: list(range(start, stop)), length)
    assert [index for part in ranges for index in part] == list(range(length))
    assert len(ranges) == min(THREADS, length)
    assert all(ranges)


def test_ranges_are_processed_in_parallel():
    barrier = threading.Barrier(THREADS)
    map_ranges(lambda start, stop: barrier.wait(30), 10)


def test_errors_in_a_range_are_raised():
    with pytest.raises(ZeroDivisionError):
        map_ranges(lambda start, stop: 1 // start, 10)
