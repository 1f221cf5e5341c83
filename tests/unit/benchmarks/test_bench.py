"""Tables of the comparisons, from made-up measurements."""

from benchmarks import bench, bench_peers
from benchmarks.closed_loop import Cells
from benchmarks.servers import OURS, SAME_ENGINE, WITHOUT_TRITON, Turn


def measured(planned, slower) -> Cells:
    """Return two rounds of all cells: 1 s and 2 s per answer, multiplied by `slower(arm)`."""
    cells = Cells()
    for taken in (1.0, 2.0):
        for cell in planned:
            cells.add(
                cell,
                Turn(
                    [taken * slower(cell.arm)] * 4, 4 * taken * slower(cell.arm) / cell.concurrency
                ),
            )
    return cells


def test_plan_measures_all_that_the_summary_needs():
    cells = measured(bench.plan("raw"), lambda arm: 1.25 if arm == WITHOUT_TRITON else 1.0)
    lines = bench.summary(cells).splitlines()
    assert len(lines) == 2 + len(bench.ROWS) + 1
    assert lines[-1].count("1.25 (1.25-1.25)") == 3


def test_peers_are_compared_by_latency_for_one_caller_and_by_answers_for_eight():
    cells = measured(bench_peers.PLAN, lambda arm: {OURS: 1.0, SAME_ENGINE: 2.0}.get(arm, 4.0))
    rows = [
        [cell.strip() for cell in row.split("|")[1:-1]]
        for row in bench_peers.speeds_table(cells).splitlines()
    ]
    speeds = {(peer, load): speed for peer, load, *_, speed in rows}
    for load in ("cold click, ms", "cold, 8 callers, answers/s"):
        assert speeds[bench_peers.FASTAPI, load] == "4.00 (4.00-4.00)"
    assert speeds[bench_peers.PREDICTOR, "cold click, ms (ONNX Runtime)"] == "2.00 (2.00-2.00)"
