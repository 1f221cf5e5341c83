"""Ideal queue for comparison with an open loop."""

from __future__ import annotations

import pytest

from benchmarks.closed import Cell, Cells
from benchmarks.load import Outcome, poisson
from benchmarks.open_loop import capacity, queue, schedule, tail


def test_queued_requests_wait_for_earlier_ones():
    assert queue([0.0, 0.1, 5.0], 1.0) == pytest.approx([1.0, 1.9, 1.0])


def test_even_arrivals_do_not_wait():
    assert queue(schedule("even", 0.7, 1000), 1.0) == pytest.approx([1.0] * 1000)


def test_queue_at_seventy_per_cent_load_agrees_with_theory():
    latencies = queue(poisson(0.7, 200_000, seed=1), 1.0)
    # Pollaczek-Khinchine for equal service times: load / (2 (1 - load)) on top of the work itself.
    assert sum(latencies) / len(latencies) == pytest.approx(1 + 0.7 / 0.6, rel=0.03)
    assert tail(latencies) == pytest.approx(4.3, rel=0.05)


def test_capacity_is_the_highest_throughput_over_numbers_of_callers():
    cells = Cells()
    for concurrency, seconds in ((1, 4.0), (2, 1.0), (8, 2.0)):
        cells.add(Cell("ours", "cached", concurrency), Outcome([0.1] * 8, seconds), 0.0)
    cells.add(Cell("other", "cached", 8), Outcome([0.1] * 8, 0.1), 0.0)
    assert capacity(cells, "ours", "cached") == 8.0
