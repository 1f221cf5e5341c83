"""The answer in one table: what this service, and Triton in it, bring over BentoML alone, in answers a second."""

from __future__ import annotations

from benchmarks.arms import OURS, PLAIN_BENTOML, SAME_ENGINE, WITHOUT_TRITON
from benchmarks.closed import Cell, Cells
from benchmarks.figures import Spread, spread, table
from benchmarks.workloads import CACHED, COLD

ROWS = {
    PLAIN_BENTOML: "BentoML alone, as its documentation shows it; ONNX Runtime f32",
    SAME_ENGINE: "this service, with the same engine",
    OURS: "this service, as it chooses",
    WITHOUT_TRITON: "the same code and engine as the row above, without Triton",
}
COLUMNS = {
    "new images, 1 caller": (COLD, 1),
    "new images, 8 callers": (COLD, 8),
    "known image, 8 callers": (CACHED, 8),
}


def answers_per_second(cells: Cells) -> dict[str, list[Spread]]:
    """Return the answers a second of each arm of `ROWS`, in the order of `COLUMNS`."""
    return {
        arm: [spread(cells.throughputs(Cell(arm, workload, callers))) for workload, callers in COLUMNS.values()]
        for arm in ROWS
    }


def part_of_triton(cells: Cells) -> list[Spread]:
    """Return the service's answers a second over those of the same code without Triton, in the order of `COLUMNS`."""
    return [
        cells.throughput_ratio(Cell(OURS, workload, callers), Cell(WITHOUT_TRITON, workload, callers))
        for workload, callers in COLUMNS.values()
    ]


def as_table(cells: Cells) -> str:
    """Return answers a second with quartiles over the rounds, then Triton's part of them."""
    rows = [(ROWS[arm], *figures) for arm, figures in answers_per_second(cells).items()]
    ratios = ("**Triton's part: with / without it**", *part_of_triton(cells))
    return table(("answers a second (quartiles)", *COLUMNS), [*rows, ratios])
