"""The first table of the page, and that what it and the goals need is measured."""

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
    """Return two rounds of all cells, of 1 s and then 2 s an answer without Triton, of 2 s and then 1 s elsewhere."""
    cells = Cells()
    planned = [*plan(full), *(Cell(RAW, workload) for workload in (COLD, CACHED, ENCODE))]
    for without, other in ((1.0, 2.0), (2.0, 1.0)):
        for cell in planned:
            taken = without if cell.arm == WITHOUT_TRITON else other
            cells.add(cell, Outcome([taken], taken), 0.1)
    return cells


@pytest.mark.parametrize("full", [False, True], ids=["quick", "full"])
def test_answer_and_goals_find_all_they_need_in_the_plan(full):
    cells = measured(full)
    assert len(answer.as_table(cells).splitlines()) == 2 + len(answer.ROWS) + 1
    names = [goal.name for goal in goals(cells, RAW, Extras([], 1, 100, [1.0]))]
    assert len(names) == len(set(names)) == 4 + 2 * len(WORKLOADS) + 3


def test_part_of_triton_is_the_median_of_the_rounds_ratios():
    for ratio in answer.part_of_triton(measured(full=False)):
        assert (ratio.low, ratio.median, ratio.high) == pytest.approx((0.875, 1.25, 1.625))


def test_answers_are_of_the_arm_and_load_that_the_table_says():
    cells = measured(full=False)
    cells.add(Cell(OURS, CACHED, 8), Outcome([0.1] * 10, 0.25), 0.1)
    first, second, third = answer.answers_per_second(cells)[OURS]
    assert (first.high, second.high) == (0.875, 0.875)
    assert third.high == pytest.approx(20.5)
