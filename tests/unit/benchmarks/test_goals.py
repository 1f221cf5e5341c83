"""Goals and the ratios of rounds behind them."""

from __future__ import annotations

import pytest

from benchmarks.closed import Cell, Cells
from benchmarks.figures import spread
from benchmarks.goals import LOWER, UPPER, Goal, as_table
from benchmarks.load import Outcome


@pytest.mark.parametrize(
    ("sense", "figure", "met"),
    [(UPPER, 1.1, True), (UPPER, 1.11, False), (LOWER, 1.1, True), (LOWER, 1.09, False)],
)
def test_goal_is_met_at_its_limit_and_better(sense, figure, met):
    goal = Goal("name", sense, 1.1, spread([figure]), "the reason")
    assert goal.met is met
    assert ("the reason" in as_table([goal])) is not met
    assert f"{int(met)} of 1 goals are met." in as_table([goal])


def test_cells_compare_the_same_rounds():
    cells, ours, other = Cells(), Cell("ours", "cold"), Cell("other", "cold")
    for latency, base in ((0.2, 0.1), (0.9, 0.3), (0.4, 0.2)):
        cells.add(ours, Outcome([latency, latency], 2 * latency, answer_bytes=20), 0.5)
        cells.add(other, Outcome([base], base), 0.1)
    assert cells.latency_ratio(ours, other).median == pytest.approx(2.0)
    assert cells.throughput_ratio(ours, other).median == pytest.approx(0.5)
    assert cells.per_request(ours) == {"cpu": pytest.approx(0.25), "client_cpu": 0.0, "bytes": 10}
