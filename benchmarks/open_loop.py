"""Open loop: requests are sent on a schedule, at a share of the service's capacity.

Arrivals are even, as from a load generator with a constant rate, or Poisson, as from independent callers. Poisson
arrivals come in bursts, which make even an ideal server's queue long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.closed import Cells, Setup
from benchmarks.figures import percentile, table
from benchmarks.load import even, poisson

SHARE = 0.7
SEED = 20

Arrivals = Literal["even", "Poisson"]
ARRIVALS: tuple[Arrivals, ...] = ("even", "Poisson")


@dataclass
class OpenLoop:
    """Results of one open loop."""

    arm: str
    workload: str
    arrivals: Arrivals
    rate: float
    """Requests per second."""
    latencies: list[float]
    """Seconds since each request was due."""

    def tail(self) -> float:
        """Return the ratio of the 99th percentile to the median."""
        return tail(self.latencies)

    def queue_tail(self) -> float:
        """Return the same ratio for an ideal server with constant service time, on the same schedule."""
        return tail(queue(schedule(self.arrivals, self.rate, len(self.latencies)), SHARE / self.rate))


def schedule(arrivals: Arrivals, rate: float, count: int) -> list[float]:
    """Return the send times, the same in every run."""
    return even(rate, count) if arrivals == "even" else poisson(rate, count, SEED)


def tail(latencies: Sequence[float]) -> float:
    """Return the ratio of the 99th percentile to the median."""
    return percentile(latencies, 99) / percentile(latencies, 50)


def queue(due: Sequence[float], work: float) -> list[float]:
    """Return the latencies at an ideal server that handles one request at a time, each in `work` seconds."""
    free, latencies = 0.0, []
    for time in due:
        free = max(time, free) + work
        latencies.append(free - time)
    return latencies


def capacity(cells: Cells, arm: str, workload: str) -> float:
    """Return the highest throughput over all numbers of callers."""
    found = [cell for cell in cells.rounds if (cell.arm, cell.workload) == (arm, workload)]
    return max(percentile(cells.throughputs(cell), 50) for cell in found)


def measure(setup: Setup, cells: Cells, name: str, workload: str, *, arrivals: Arrivals, count: int) -> OpenLoop:
    """Send `count` requests at `SHARE` of the capacity."""
    arm, rate = setup.arms[name], SHARE * capacity(cells, name, workload)
    run = arm.run(setup.clicks.of(workload, arm, count), due=schedule(arrivals, rate, count))
    return OpenLoop(name, workload, arrivals, rate, setup.client.run(run).latencies)


def as_table(loops: Sequence[OpenLoop]) -> str:
    """Return a table of all open loops."""
    rows = []
    for loop in loops:
        p50, p95, p99 = (percentile(loop.latencies, percent) * 1e3 for percent in (50, 95, 99))
        load = (loop.workload, loop.arrivals, loop.arm, loop.rate, len(loop.latencies))
        rows.append((*load, p50, p95, p99, loop.tail(), loop.queue_tail()))
    times = ("p50 ms", "p95 ms", "p99 ms", "p99 / p50", "of an ideal queue")
    return table(("", "arrivals", "arm", "requests/s", "requests", *times), rows)
