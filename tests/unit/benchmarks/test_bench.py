"""Tables of the comparisons, from made-up measurements."""

import pytest

from benchmarks import bench, bench_peers
from benchmarks.arms import COLD, OURS, SAME_ENGINE, WITHOUT_TRITON, Turn
from benchmarks.loops import Cell, Cells


def measured(planned, slower) -> Cells:
    """Return two rounds of all cells: 1 s and 2 s per answer, multiplied by `slower(arm)`."""
    cells = Cells()
    for taken in (1.0, 2.0):
        for cell in planned:
            cells.add(cell, Turn([taken * slower(cell.arm)] * 4, 4 * taken * slower(cell.arm) / cell.concurrency))
    return cells


def test_plan_measures_all_that_the_summary_needs():
    cells = measured(bench.plan("raw"), lambda arm: 1.25 if arm == WITHOUT_TRITON else 1.0)
    lines = bench.summary(cells).splitlines()
    assert len(lines) == 2 + len(bench.ROWS) + 1
    assert lines[-1].count("1.25 (1.25-1.25)") == 3


def test_peers_are_compared_by_latency_for_one_caller_and_by_answers_for_eight():
    cells = measured(bench_peers.PLAN, lambda arm: {OURS: 1.0, SAME_ENGINE: 2.0}.get(arm, 4.0))
    for callers in (1, 8):
        assert bench_peers.speed(cells, Cell(bench_peers.FASTAPI, COLD, callers)).median == pytest.approx(4)
    assert "2.00 (2.00-2.00)" in bench_peers.speeds_table(cells)
