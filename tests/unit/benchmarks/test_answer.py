"""The summary table of docs/performance.md, and the measurements that it and the goals need."""

from __future__ import annotations

import pytest

from benchmarks import answer
from benchmarks.arms import OURS, WITHOUT_TRITON
from benchmarks.closed import ENCODE, Cell, Cells, plan
from benchmarks.goals import Extras, goals
from benchmarks.load import Outcome
from benchmarks.workloads import CACHED, COLD, WORKLOADS

RAW = "raw"


def measured(full: bool) -> Cells:
    """Return two rounds of all cells: 1 s and 2 s per answer without Triton, 2 s and 1 s for all other arms."""
    cells = Cells()
    planned = [*plan(full), *(Cell(RAW, workload) for workload in (COLD, CACHED, ENCODE))]
    for without, other in ((1.0, 2.0), (2.0, 1.0)):
        for cell in planned:
            taken = without if cell.arm == WITHOUT_TRITON else other
            cells.add(cell, Outcome([taken], taken), 0.1)
    return cells


@pytest.mark.parametrize("full", [False, True], ids=["quick", "full"])
def test_plan_measures_all_that_answer_and_goals_need(full):
    cells = measured(full)
    assert len(answer.as_table(cells).splitlines()) == 2 + len(answer.ROWS) + 1
    names = [goal.name for goal in goals(cells, RAW, Extras([], 1, 100, [1.0]))]
    assert len(names) == len(set(names)) == 4 + 2 * len(WORKLOADS) + 3


def test_triton_ratio_is_the_median_of_the_rounds_ratios():
    for ratio in answer.triton_ratios(measured(full=False)):
        assert (ratio.low, ratio.median, ratio.high) == pytest.approx((0.875, 1.25, 1.625))


def test_answers_per_second_belong_to_their_arm_and_load():
    cells = measured(full=False)
    cells.add(Cell(OURS, CACHED, 8), Outcome([0.1] * 10, 0.25), 0.1)
    first, second, third = answer.answers_per_second(cells)[OURS]
    assert (first.high, second.high) == (0.875, 0.875)
    assert third.high == pytest.approx(20.5)
