"""Closed loop: each arm under each workload at several numbers of callers, measured in rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import psutil
from tqdm import tqdm

from benchmarks.arms import OURS, PLAIN_BENTOML, PLAIN_FASTAPI, SAME_ENGINE, TRITON, WITHOUT_TRITON, Arm
from benchmarks.figures import Spread, percentile, ratios, spread, table
from benchmarks.load import LoadClient, Outcome
from benchmarks.service import Service
from benchmarks.timing import seconds
from benchmarks.workloads import CACHED, COLD, MIXED, WORKLOADS, Clicks, new_images

ENCODE = "encode"
"""Additional workload of the raw arms: the encoder alone."""
PAUSE_S = 0.05
"""Pause before each turn, so that the last arm's threads are idle."""

RawArms = Mapping[tuple[str, str], Callable[[], object]]
"""Functions by names of arm and workload."""


@dataclass(frozen=True)
class Setup:
    """Arms, load client and generator of clicks for a measurement."""

    arms: Mapping[str, Arm]
    client: LoadClient
    clicks: Clicks


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
    cpu_seconds: dict[Cell, list[float]] = field(default_factory=dict)
    """CPU time of the server's processes in each round; of this process for a raw arm."""

    def add(self, cell: Cell, outcome: Outcome, cpu_seconds: float) -> None:
        """Add a round's outcome."""
        self.rounds.setdefault(cell, []).append(outcome)
        self.cpu_seconds.setdefault(cell, []).append(cpu_seconds)

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

    def per_request(self, cell: Cell) -> dict[str, float]:
        """Return the mean cost of a request: `cpu` and `client_cpu` in seconds, `bytes` of the answer."""
        outcomes = self.rounds[cell]
        count = sum(len(outcome.latencies) for outcome in outcomes)
        return {
            "cpu": sum(self.cpu_seconds[cell]) / count,
            "client_cpu": sum(outcome.client_cpu_seconds for outcome in outcomes) / count,
            "bytes": sum(outcome.answer_bytes for outcome in outcomes) / count,
        }

    def as_table(self) -> str:
        """Return a table of all cells."""
        rows = []
        for cell in self.rounds:
            p50, p95, p99 = (percentile(self.latencies(cell), percent) * 1e3 for percent in (50, 95, 99))
            cost = self.per_request(cell)
            times = (p50, p95, p99, spread(self.throughputs(cell)), cost["cpu"] * 1e3)
            answer = (cost["client_cpu"] * 1e3, f"{cost['bytes']:.0f}") if cost["bytes"] else ("", "")
            rows.append((cell.workload, cell.concurrency, cell.arm, len(self.latencies(cell)), *times, *answer))
        rows.sort(key=lambda row: ((*WORKLOADS, ENCODE).index(row[0]), row[1]))
        speed = ("p50 ms", "p95 ms", "p99 ms", "answers/s (quartiles)")
        return table(("", "callers", "arm", "answers", *speed, "CPU ms", "client CPU ms", "answer bytes"), rows)


def plan(full: bool) -> dict[Cell, int]:
    """Return the requests per round of each cell of the HTTP arms."""
    cells = {
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
    if full:
        cells |= {
            Cell(TRITON, COLD): 4,
            Cell(TRITON, CACHED): 20,
            Cell(TRITON, CACHED, 8): 40,
            Cell(TRITON, MIXED, 8): 24,
        }
    return cells


def measure(setup: Setup, raw: RawArms, rounds: int, full: bool) -> Cells:
    """Measure all cells in turn, round by round, after a short warm-up round."""
    found, planned = Cells(), plan(full)
    raw_count = 4 if full else 2
    for number in tqdm(range(rounds + 1), desc="closed loop", unit="round"):
        for (name, workload), work in raw.items():
            outcome, cpu = raw_turn(work, 1 if number == 0 else raw_count * (5 if workload == CACHED else 1))
            if number:
                found.add(Cell(name, workload), outcome, cpu)
        for cell, count in planned.items():
            warm = cell.concurrency if cell.workload == CACHED else 1
            outcome, cpu = turn(setup, cell, count if number else warm)
            if number:
                found.add(cell, outcome, cpu)
    return found


def turn(setup: Setup, cell: Cell, count: int) -> tuple[Outcome, float]:
    """Run one arm's turn; return its outcome and the server's CPU seconds.

    Raises:
        LoadError: the server returned an error.
        RuntimeError: the service encoded more or fewer images than were new.
    """
    arm = setup.arms[cell.arm]
    run = arm.run(setup.clicks.of(cell.workload, arm, count), cell.concurrency)
    time.sleep(PAUSE_S)
    cpu = arm.server.cpu_seconds()
    before = arm.server.embeddings()["encoded"] if isinstance(arm.server, Service) else 0
    outcome = setup.client.run(run)
    cpu = arm.server.cpu_seconds() - cpu
    if isinstance(arm.server, Service):
        encoded, expected = arm.server.embeddings()["encoded"] - before, new_images(cell.workload, count)
        if encoded != expected:
            raise RuntimeError(f"{cell}: expected {expected} encoded images, got {encoded}")
    return outcome, cpu


def raw_turn(work: Callable[[], object], count: int) -> tuple[Outcome, float]:
    """Run a raw arm's turn; return its outcome and this process's CPU seconds."""
    time.sleep(PAUSE_S)
    before = psutil.Process().cpu_times()
    latencies = [seconds(work) for _ in range(count)]
    after = psutil.Process().cpu_times()
    return Outcome(latencies, sum(latencies)), after.user + after.system - before.user - before.system
