"""Summary table: answers per second of this service and of BentoML alone, with and without Triton."""

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
    """Return the answers per second of each arm of `ROWS`, in the order of `COLUMNS`."""
    return {
        arm: [spread(cells.throughputs(Cell(arm, workload, callers))) for workload, callers in COLUMNS.values()]
        for arm in ROWS
    }


def triton_ratios(cells: Cells) -> list[Spread]:
    """Return the ratio of answers per second with and without Triton, in the order of `COLUMNS`."""
    return [
        cells.throughput_ratio(Cell(OURS, workload, callers), Cell(WITHOUT_TRITON, workload, callers))
        for workload, callers in COLUMNS.values()
    ]


def as_table(cells: Cells) -> str:
    """Return a table of answers per second with quartiles over the rounds, and Triton's ratio."""
    rows = [(ROWS[arm], *figures) for arm, figures in answers_per_second(cells).items()]
    ratios = ("**Triton's part: with / without it**", *triton_ratios(cells))
    return table(("answers a second (quartiles)", *COLUMNS), [*rows, ratios])
