"""Closed and open loops: each arm under each workload, measured in rounds.

Closed loop: a number of callers, each of whom sends its next request when it has its answer. Open loop: requests are
sent on a schedule, at a share of the service's capacity; arrivals are even, or Poisson as from independent callers.
Poisson arrivals come in bursts, which make even an ideal server's queue long.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from tqdm import tqdm

from benchmarks.arms import (
    CACHED,
    COLD,
    ENCODE,
    MIXED,
    OURS,
    PLAIN_BENTOML,
    PLAIN_FASTAPI,
    SAME_ENGINE,
    WITHOUT_TRITON,
    WORKLOADS,
    Arm,
    ServerArm,
)
from benchmarks.figures import Spread, percentile, ratios, spread, table
from benchmarks.load import Outcome, poisson

PAUSE_S = 0.05
"""Pause before each turn, so that the last arm's threads are idle."""
EVEN, POISSON = ARRIVALS = ("even", "Poisson")
OPEN_LOOP_SHARE = 0.7
OPEN_LOOP_REQUESTS = {CACHED: 400, MIXED: 200}
SEED = 20


@dataclass(frozen=True)
class Cell:
    """One row of the table: an arm under a workload with a number of callers."""

    arm: str
    workload: str
    concurrency: int = 1


@dataclass
class Cells:
    """Outcomes of all rounds, by cell."""

    rounds: dict[Cell, list[Outcome]] = field(default_factory=dict)

    def add(self, cell: Cell, outcome: Outcome) -> None:
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

    def latency_ratio(self, cell: Cell, base: Cell) -> Spread:
        """Return the ratio of median latencies over the rounds."""
        return ratios(self.medians(cell), self.medians(base))

    def throughput_ratio(self, cell: Cell, base: Cell) -> Spread:
        """Return the ratio of throughputs over the rounds."""
        return ratios(self.throughputs(cell), self.throughputs(base))

    def capacity(self, arm: str, workload: str) -> float:
        """Return the highest throughput over all numbers of callers."""
        found = [cell for cell in self.rounds if (cell.arm, cell.workload) == (arm, workload)]
        return max(percentile(self.throughputs(cell), 50) for cell in found)

    def as_table(self, arms: Collection[str] = ()) -> str:
        """Return a table of the cells of these arms, or of all."""
        rows = []
        order = (*WORKLOADS, ENCODE)
        for cell, outcomes in sorted(
            self.rounds.items(), key=lambda item: (order.index(item[0].workload), item[0].concurrency)
        ):
            if arms and cell.arm not in arms:
                continue
            latencies = self.latencies(cell)
            count = len(latencies)
            times = [percentile(latencies, percent) * 1e3 for percent in (50, 95)]
            cpu = sum(outcome.cpu_seconds for outcome in outcomes) / count * 1e3
            speed = spread(self.throughputs(cell))
            rows.append((f"{cell.workload}, {cell.concurrency}", cell.arm, *times, speed, cpu))
        return table(("load, callers", "arm", "p50 ms", "p95 ms", "answers/s (quartiles)", "CPU ms"), rows)


def plan(raw: Collection[str], full: bool) -> dict[Cell, int]:
    """Return the requests per round of each cell.

    Args:
        raw: names of the raw arms.
        full: whether to measure cached clicks at all numbers of callers.
    """
    cells: dict[Cell, int] = {}
    for name in raw:
        cells |= {Cell(name, COLD): 4, Cell(name, ENCODE): 4, Cell(name, CACHED): 20}
    cells |= {
        Cell(PLAIN_BENTOML, COLD): 2,
        Cell(PLAIN_BENTOML, COLD, 8): 8,
        Cell(PLAIN_BENTOML, CACHED): 1,
        Cell(PLAIN_BENTOML, CACHED, 8): 8,
        Cell(PLAIN_FASTAPI, COLD): 2,
        Cell(SAME_ENGINE, COLD): 3,
        Cell(SAME_ENGINE, COLD, 8): 10,
        Cell(SAME_ENGINE, CACHED): 10,
        Cell(SAME_ENGINE, CACHED, 8): 40,
    }
    for arm in (OURS, WITHOUT_TRITON):
        cells |= {Cell(arm, COLD): 4, Cell(arm, COLD, 8): 12}
        cells |= {Cell(arm, CACHED, callers): max(20, 5 * callers) for callers in ((1, 2, 4, 8) if full else (1, 8))}
        cells |= {Cell(arm, MIXED): 10, Cell(arm, MIXED, 8): 24}
    return cells


def closed_loop(arms: Mapping[str, Arm], planned: Mapping[Cell, int], client: Executor, rounds: int) -> Cells:
    """Measure all cells in turn, round by round, after a short warm-up round.

    Raises:
        LoadError: a server returned an error.
        RuntimeError: the service encoded more or fewer images than were new.
    """
    found = Cells()
    for number in tqdm(range(rounds + 1), desc="closed loop", unit="round"):
        for cell, count in planned.items():
            warm_up = cell.concurrency if cell.workload == CACHED else 1
            time.sleep(PAUSE_S)
            outcome = arms[cell.arm].turn(cell.workload, cell.concurrency, count if number else warm_up, client)
            if number:
                found.add(cell, outcome)
    return found


def memory_line(arms: Mapping[str, ServerArm]) -> str:
    """Return a sentence with the resident memory of all arms."""
    sizes = ", ".join(f"{name} {arm.server.resident_bytes() / 1e9:.2f} GB" for name, arm in arms.items())
    return f"Resident memory, shared pages in each process: {sizes}."


@dataclass
class OpenLoop:
    """Result of one open loop of the service."""

    workload: str
    arrivals: str
    rate: float
    """Requests per second."""
    latencies: list[float]
    """Seconds since each request was due."""

    def tail(self) -> float:
        """Return the ratio of the 99th percentile to the median."""
        return tail(self.latencies)

    def row(self) -> tuple[object, ...]:
        """Return a row of `open_table`."""
        p50, p95, p99 = (percentile(self.latencies, percent) * 1e3 for percent in (50, 95, 99))
        ideal = queue(schedule(self.arrivals, self.rate, len(self.latencies)), OPEN_LOOP_SHARE / self.rate)
        load = (self.workload, self.arrivals, OURS, self.rate, len(self.latencies))
        return *load, p50, p95, p99, self.tail(), tail(ideal)


def open_loops(arm: ServerArm, cells: Cells, client: Executor) -> list[OpenLoop]:
    """Measure the service at `OPEN_LOOP_SHARE` of its capacity in the closed loop."""
    found = []
    for workload, count in OPEN_LOOP_REQUESTS.items():
        rate = OPEN_LOOP_SHARE * cells.capacity(OURS, workload)
        for arrivals in ARRIVALS:
            outcome = arm.turn(workload, 1, count, client, schedule(arrivals, rate, count))
            found.append(OpenLoop(workload, arrivals, rate, outcome.latencies))
    return found


def open_table(loops: Sequence[OpenLoop]) -> str:
    """Return a table of all open loops."""
    times = ("p50 ms", "p95 ms", "p99 ms", "p99 / p50", "of an ideal queue")
    return table(("", "arrivals", "arm", "requests/s", "requests", *times), [loop.row() for loop in loops])


def schedule(arrivals: str, rate: float, count: int) -> list[float]:
    """Return the send times, the same in every run."""
    return poisson(rate, count, SEED) if arrivals == POISSON else [number / rate for number in range(count)]


def tail(latencies: Sequence[float]) -> float:
    """Return the ratio of the 99th percentile to the median."""
    return percentile(latencies, 99) / percentile(latencies, 50)


def queue(due: Sequence[float], work: float) -> list[float]:
    """Return the latencies at an ideal server that handles one request at a time, each in `work` seconds."""
    free, latencies = 0.0, []
    for arrival in due:
        free = max(arrival, free) + work
        latencies.append(free - arrival)
    return latencies
