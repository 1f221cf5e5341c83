"""Performance goals against the raw model and the peers. A missed goal is reported and fails nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.arms import OURS, PLAIN_BENTOML, PLAIN_FASTAPI, WITHOUT_TRITON
from benchmarks.closed import ENCODE, Cell, Cells
from benchmarks.figures import Spread, percentile, short, spread, table
from benchmarks.open_loop import OpenLoop
from benchmarks.workloads import CACHED, COLD, MIXED, WORKLOADS

UPPER, LOWER = "at most", "at least"
OVERHEAD = "HTTP, BentoML, the orchestrator and, for cold clicks, JPEG decoding add to the raw model's time"
EXTRA_PROCESSES = (
    "with Triton, each request passes through three more processes, which costs more than it gains on two cores"
)


@dataclass(frozen=True)
class Goal:
    """Measured figure with its limit."""

    name: str
    sense: str
    limit: float
    figure: Spread
    reason: str
    """Explanation to print if the goal is missed."""

    @property
    def met(self) -> bool:
        """Return whether the median keeps to the limit."""
        return self.figure.median <= self.limit if self.sense == UPPER else self.figure.median >= self.limit


@dataclass(frozen=True)
class Extras:
    """Measurements besides the closed loop."""

    loops: Sequence[OpenLoop]
    rle_bytes: int
    json_bytes: int
    first_requests: Sequence[float]
    """Latency of the first request after each start, on a new image, in seconds."""


def goals(cells: Cells, raw: str, extras: Extras) -> list[Goal]:
    """Return all goals.

    Args:
        cells: results of the closed loop.
        raw: name of the raw arm with the service's engines.
        extras: the other measurements.
    """
    cold, cached = Cell(OURS, COLD), Cell(OURS, CACHED)
    steady = percentile(cells.latencies(cold), 50)
    encodes = [1 / latency for latency in cells.medians(Cell(raw, ENCODE))]
    at_eight = [value / encode for value, encode in zip(cells.throughputs(Cell(OURS, COLD, 8)), encodes, strict=True)]
    found = [
        Goal("cold click / raw encoder + decoder", UPPER, 1.10, cells.latency_ratio(cold, Cell(raw, COLD)), OVERHEAD),
        Goal(
            f"cold click / {PLAIN_FASTAPI}",
            UPPER,
            0.45,
            cells.latency_ratio(cold, Cell(PLAIN_FASTAPI, COLD)),
            "only a faster encoder helps: there is none without bfloat16 in hardware or with the built-in weights",
        ),
        Goal("cached click / raw decoder", UPPER, 1.20, cells.latency_ratio(cached, Cell(raw, CACHED)), OVERHEAD),
        Goal(
            f"cached click / {PLAIN_BENTOML}",
            UPPER,
            0.05,
            cells.latency_ratio(cached, Cell(PLAIN_BENTOML, CACHED)),
            "the decoder alone takes more than 5 % of encoder and decoder",
        ),
    ]
    for workload in WORKLOADS:
        for concurrency, limit in ((1, 1.0), (8, 1.2)):
            ours, without = (Cell(arm, workload, concurrency) for arm in (OURS, WITHOUT_TRITON))
            name = f"answers/s, {workload}, {concurrency} callers / without Triton"
            found.append(Goal(name, LOWER, limit, cells.throughput_ratio(ours, without), EXTRA_PROCESSES))
    found += [
        Goal(
            "answers/s, cold, 8 callers / raw encoder's",
            LOWER,
            0.85,
            spread(at_eight),
            "decoding and scaling JPEG files, the decoder and HTTP share the cores with the encoder",
        ),
        Goal(
            "bytes, rle mask / json mask",
            UPPER,
            0.01,
            spread([extras.rle_bytes / extras.json_bytes]),
            "masks with many islands have long run lengths",
        ),
        Goal(
            "first request after ready / steady p50",
            UPPER,
            1.3,
            spread([first / steady for first in extras.first_requests]),
            "the API worker's first request opens its connection to Triton and pays for lazy imports",
        ),
    ]
    return found + [
        Goal(
            f"open loop at 70 %, {loop.workload}, even: p99 / p50",
            UPPER,
            2.0,
            spread([loop.tail()]),
            "a new image takes many times as long as a click on a known one"
            if loop.workload == MIXED
            else "all processes share the same cores",
        )
        for loop in extras.loops
        if loop.arm == OURS and loop.arrivals == "even"
    ]


def as_table(found: Sequence[Goal]) -> str:
    """Return the number of goals met and a table of those missed."""
    missed = [goal for goal in found if not goal.met]
    rows = [(goal.name, f"{goal.sense} {short(goal.limit)}", goal.figure, goal.reason) for goal in missed]
    summary = f"{len(found) - len(missed)} of {len(found)} goals are met."
    if not missed:
        return summary
    return f"{summary} Missed:\n\n{table(('', 'goal', 'measured (quartiles)', 'reason'), rows)}"
