"""Goals, the ratios of rounds behind them, and the measurements that they and the summary table need."""

import pytest

from benchmarks import bench_peers
from benchmarks.arms import CACHED, COLD, MIXED, OURS, SAME_ENGINE, WITHOUT_TRITON, WORKLOADS
from benchmarks.bench import select
from benchmarks.figures import spread
from benchmarks.goals import LOWER, ROWS, UPPER, Extras, Goal, as_list, goals, summary
from benchmarks.load import Outcome
from benchmarks.loops import Cell, Cells, plan

RAW = "raw"


def measured(planned) -> Cells:
    """Return two rounds of all cells: 1 s and 2 s per answer without Triton, 2 s and 1 s for all other arms."""
    cells = Cells()
    for without, other in ((1.0, 2.0), (2.0, 1.0)):
        for cell in planned:
            taken = without if cell.arm == WITHOUT_TRITON else other
            cells.add(cell, Outcome([taken], taken))
    return cells


@pytest.mark.parametrize("full", [False, True], ids=["quick", "full"])
def test_plan_measures_all_that_summary_and_goals_need(full):
    cells = measured(plan([RAW], full))
    assert len(summary(cells).splitlines()) == 2 + len(ROWS) + 1
    names = [goal.name for goal in goals(cells, RAW, Extras([], [0.01], [1.0]))]
    assert len(names) == len(set(names)) == 4 + 2 * len(WORKLOADS) + 3


@pytest.mark.parametrize("workload", WORKLOADS)
def test_one_workload_is_judged_against_the_raw_model_and_without_triton(workload):
    planned = select(plan([RAW, "other raw"], False), workload, RAW)
    assert {cell.workload for cell in planned} == {workload}
    assert {cell.arm for cell in planned} == {OURS, WITHOUT_TRITON, *([RAW] if workload != MIXED else [])}
    names = [goal.name for goal in goals(measured(planned), RAW, Extras())]
    assert f"answers/s, {workload}, 8 callers / without Triton" in names


def test_summary_has_the_median_of_the_rounds_ratios():
    assert summary(measured(plan([RAW], False))).splitlines()[-1].count("1.25 (0.875-1.62)") == 3


@pytest.mark.parametrize(
    ("sense", "figure", "met"),
    [(UPPER, 1.1, True), (UPPER, 1.11, False), (LOWER, 1.1, True), (LOWER, 1.09, False)],
)
def test_goal_is_met_at_its_limit_and_better(sense, figure, met):
    goal = Goal("the goal", sense, 1.1, spread([figure]))
    assert goal.met is met
    assert ("the goal" in as_list([goal])) is not met
    assert f"{int(met)} of 1 goals are met." in as_list([goal])


@pytest.mark.parametrize(
    ("slower", "bf16", "met"),
    [
        pytest.param(4.6, True, [True, True, True, True, True], id="all"),
        pytest.param(4.4, True, [False, True, True, True, True], id="cold-with-bfloat16"),
        pytest.param(2.1, False, [True, False, False, False, False], id="cold-without-bfloat16"),
        pytest.param(1.9, False, [False, False, False, False, False], id="none"),
    ],
)
def test_peers_goals_compare_the_speed_for_one_caller_and_eight(slower, bf16, met):
    cells = Cells()
    for cell in bench_peers.PLAN:
        times = {OURS: 1, SAME_ENGINE: 2}.get(cell.arm, slower)
        latency = {COLD: 0.1, CACHED: 0.02}[cell.workload] * times
        cells.add(cell, Outcome([latency] * 4, 4 * latency / cell.concurrency))
    assert bench_peers.speed(cells, Cell(bench_peers.FASTAPI, COLD, 8)).median == pytest.approx(slower)
    assert [goal.met for goal in bench_peers.goals(cells, bf16)] == met
