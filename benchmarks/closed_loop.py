"""Closed loops, in rounds: a number of callers, each of whom sends its next request when it has
its answer.
"""

import time
from collections.abc import Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field

from tqdm import tqdm

from benchmarks.servers import CACHED, IN_ORDER, Arm, ServerArm, Turn
from benchmarks.stats import Spread, percentile, ratios, spread, table
from harness.server import resident_bytes

PAUSE_S = 0.05
"""Pause before each turn, so that the last arm's threads are idle."""


@dataclass(frozen=True)
class Cell:
    """One row of the table: an arm under a workload with a number of callers."""

    arm: str
    workload: str
    concurrency: int = 1


def _place(cell: Cell) -> tuple[int, int]:
    return IN_ORDER.index(cell.workload), cell.concurrency


@dataclass
class Cells:
    """Outcomes of all rounds, by cell."""

    rounds: dict[Cell, list[Turn]] = field(default_factory=dict)

    def add(self, cell: Cell, outcome: Turn) -> None:
        """Add a round's outcome."""
        self.rounds.setdefault(cell, []).append(outcome)

    def latencies(self, cell: Cell) -> list[float]:
        """Return the latencies of all rounds, in seconds."""
        return [latency for outcome in self.rounds[cell] for latency in outcome.latencies]

    def medians(self, cell: Cell) -> list[float]:
        """Return the median latency of each round, in seconds."""
        return [percentile(outcome.latencies, 50) for outcome in self.rounds[cell]]

    def throughputs(self, cell: Cell) -> list[float]:
        """Return the answers per second of each round."""
        return [len(outcome.latencies) / outcome.seconds for outcome in self.rounds[cell]]

    def throughput_ratio(self, cell: Cell, base: Cell) -> Spread:
        """Return the ratio of throughputs over the rounds."""
        return ratios(self.throughputs(cell), self.throughputs(base))

    def cpu_ms(self, cell: Cell) -> float:
        """Return the CPU time of a request, the mean over all rounds."""
        cpu_seconds = sum(outcome.cpu_seconds for outcome in self.rounds[cell])
        return 1e3 * cpu_seconds / len(self.latencies(cell))

    def as_table(self, arms: Collection[str] = ()) -> str:
        """Return a table of the cells of these arms, or of all."""
        rows = []
        for cell in sorted(self.rounds, key=_place):
            if arms and cell.arm not in arms:
                continue
            latencies = self.latencies(cell)
            times = [percentile(latencies, percent) * 1e3 for percent in (50, 95)]
            speed = spread(self.throughputs(cell))
            load = f"{cell.workload}, {cell.concurrency}"
            rows.append((load, cell.arm, *times, speed, self.cpu_ms(cell)))
        return table(
            ("load, callers", "arm", "p50 ms", "p95 ms", "answers/s (quartiles)", "CPU ms"), rows
        )


def closed_loop(
    arms: Mapping[str, Arm],
    planned: Mapping[Cell, int],
    client: Executor,
    rounds: int,
) -> Cells:
    """Measure all cells in turn, round by round, after a short warm-up round.

    If a turn fails, what was measured until then is printed.

    Raises:
        RuntimeError: a server returned an error, or encoded more or fewer images than were new.
    """
    cells = Cells()
    try:
        for number in tqdm(range(rounds + 1), desc="closed loop", unit="round"):
            for cell, count in planned.items():
                warm_up = cell.concurrency if cell.workload == CACHED else 1
                requests = count if number else warm_up
                time.sleep(PAUSE_S)
                turn = arms[cell.arm].turn(cell.workload, cell.concurrency, requests, client)
                if number:
                    cells.add(cell, turn)
    except BaseException:
        if cells.rounds:
            print(f"Measured before the failure:\n{cells.as_table()}", flush=True)
        raise
    return cells


def memory_line(arms: Mapping[str, ServerArm]) -> str:
    """Return a sentence with the resident memory of all arms."""
    sizes = ", ".join(
        f"{name} {resident_bytes(arm.server.family()) / 1e9:.2f} GB" for name, arm in arms.items()
    )
    return f"Resident memory, shared pages in each process: {sizes}."
