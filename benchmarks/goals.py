"""Summary table and performance goals. A missed goal is reported and fails nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.arms import (
    CACHED,
    COLD,
    ENCODE,
    OURS,
    PLAIN_BENTOML,
    PLAIN_FASTAPI,
    SAME_ENGINE,
    WITHOUT_TRITON,
    WORKLOADS,
)
from benchmarks.figures import Spread, percentile, ratios, short, spread, table
from benchmarks.loops import EVEN, Cell, Cells, OpenLoop

UPPER, LOWER = "at most", "at least"
ROWS = {
    PLAIN_BENTOML: "BentoML alone, as in its documentation; ONNX Runtime f32",
    SAME_ENGINE: "this service, ONNX Runtime f32",
    OURS: "this service, default engine",
    WITHOUT_TRITON: "the same code and engine without Triton",
}
"""Rows of the summary table."""
ROUND_TRIP = "HTTP, BentoML, Triton and the mask as PNG, which do not grow with the model"
ONE_PROCESS = (
    "one process hands nothing over; Triton isolates crashes, swaps models and shares the cores between callers"
)
QUEUES = "requests wait for each other, and a new image takes both cores"
COLUMNS = {
    "new images, 1 caller": (COLD, 1),
    "new images, 8 callers": (COLD, 8),
    "known image, 8 callers": (CACHED, 8),
}


@dataclass(frozen=True)
class Goal:
    """Measured figure with its limit."""

    name: str
    sense: str
    limit: float
    figure: Spread
    reason: str = ""
    """Why the goal is missed where it is."""

    @property
    def met(self) -> bool:
        """Return whether the median keeps to the limit."""
        return self.figure.median <= self.limit if self.sense == UPPER else self.figure.median >= self.limit


@dataclass
class Extras:
    """Measurements besides the closed loop; empty if they were not made."""

    loops: list[OpenLoop] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)
    """Ratio of an answer's bytes with an RLE mask to its bytes with a JSON mask."""
    first_requests: list[float] = field(default_factory=list)
    """Latency of the first request after each start, on a new image, in seconds."""


def summary(cells: Cells) -> str:
    """Return a table of answers per second with quartiles over the rounds, and Triton's ratio."""
    rows: list[Sequence[object]] = [
        (title, *(spread(cells.throughputs(Cell(arm, *load))) for load in COLUMNS.values()))
        for arm, title in ROWS.items()
    ]
    shares = (cells.throughput_ratio(Cell(OURS, *load), Cell(WITHOUT_TRITON, *load)) for load in COLUMNS.values())
    rows.append(("**ratio: with / without Triton**", *shares))
    return table(("answers per second (quartiles)", *COLUMNS), rows)


def goals(cells: Cells, raw: str, extras: Extras) -> list[Goal]:
    """Return the goals for the measured cells.

    Args:
        cells: results of the closed loop.
        raw: name of the raw arm with the service's engines.
        extras: the other measurements.
    """
    found: list[Goal] = []
    cold, cached, cold_at_eight, encode = Cell(OURS, COLD), Cell(OURS, CACHED), Cell(OURS, COLD, 8), Cell(raw, ENCODE)
    for name, limit, cell, base, reason in (
        ("cold click / raw encoder + decoder", 1.10, cold, Cell(raw, COLD), f"reading the image, and {ROUND_TRIP}"),
        (f"cold click / {PLAIN_FASTAPI}", 0.45, cold, Cell(PLAIN_FASTAPI, COLD), ""),
        ("cached click / raw decoder", 1.20, cached, Cell(raw, CACHED), ROUND_TRIP),
        (f"cached click / {PLAIN_BENTOML}", 0.05, cached, Cell(PLAIN_BENTOML, CACHED), ""),
    ):
        if {cell, base} <= cells.rounds.keys():
            found.append(Goal(name, UPPER, limit, cells.latency_ratio(cell, base), reason))
    for workload in WORKLOADS:
        for callers, limit in ((1, 1.0), (8, 1.2)):
            cell, base = (Cell(arm, workload, callers) for arm in (OURS, WITHOUT_TRITON))
            name = f"answers/s, {workload}, {callers} callers / without Triton"
            if {cell, base} <= cells.rounds.keys():
                found.append(Goal(name, LOWER, limit, cells.throughput_ratio(cell, base), ONE_PROCESS))
    if {cold_at_eight, encode} <= cells.rounds.keys():
        figure = cells.throughput_ratio(cold_at_eight, encode)
        found.append(Goal("answers/s, cold, 8 callers / raw encoder's", LOWER, 0.85, figure))
    if extras.sizes:
        found.append(Goal("bytes, rle mask / json mask", UPPER, 0.01, spread(extras.sizes)))
    if extras.first_requests:
        steady = percentile(cells.latencies(cold), 50)
        figure = spread([first / steady for first in extras.first_requests])
        found.append(Goal("first request after ready / steady p50", UPPER, 1.3, figure))
    for loop in extras.loops:
        if loop.arrivals == EVEN:
            name = f"open loop at 70 %, {loop.workload}, even: p99 / p50"
            found.append(Goal(name, UPPER, 2.0, spread([loop.tail()]), QUEUES))
    return found


def ratio_goals(times: Mapping[str, Sequence[float]], baselines: Mapping[str, str], limit: float) -> list[Goal]:
    """Return a goal for each arm of `interleaved` that has a baseline: the limit of its median ratio."""
    return [
        Goal(f"{name} / {base}", UPPER, limit, ratios(times[name], times[base])) for name, base in baselines.items()
    ]


def as_list(found: Sequence[Goal]) -> str:
    """Return the number of goals met and a list of those missed, with the reasons."""
    missed = [goal for goal in found if not goal.met]
    lines = "\n".join(
        f"- {goal.name}: {goal.figure}, {goal.sense} {short(goal.limit)}{f'; {goal.reason}' * bool(goal.reason)}"
        for goal in missed
    )
    text = f"{len(found) - len(missed)} of {len(found)} goals are met."
    if not missed:
        return text
    return f"{text} Missed (quartiles, goal):\n\n{lines}"
