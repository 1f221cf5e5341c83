"""Open loop: requests come by a schedule, at a share of what the service can do at most, answered or not.

They come evenly, as load generators with a constant arrival rate send them, or as those of callers who know nothing of
each other do, now and then several at once (Poisson). The second makes even an ideal server's queue long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.closed import Cells, Site
from benchmarks.figures import percentile, table
from benchmarks.load import even, poisson

SHARE = 0.7
SEED = 20

Arrivals = Literal["even", "Poisson"]
ARRIVALS: tuple[Arrivals, ...] = ("even", "Poisson")


@dataclass
class OpenLoop:
    """What came of it."""

    arm: str
    workload: str
    arrivals: Arrivals
    rate: float
    """Requests a second."""
    latencies: list[float]
    """Seconds from when a request was due."""

    def tail(self) -> float:
        """The 99th percentile over the median."""
        return tail(self.latencies)

    def queue_tail(self) -> float:
        """The same of a server that takes equally long for every request, one after the other, by the same schedule."""
        return tail(queue(schedule(self.arrivals, self.rate, len(self.latencies)), SHARE / self.rate))


def schedule(arrivals: Arrivals, rate: float, count: int) -> list[float]:
    """When requests are due, the same in every run."""
    return even(rate, count) if arrivals == "even" else poisson(rate, count, SEED)


def tail(latencies: Sequence[float]) -> float:
    """The 99th percentile over the median."""
    return percentile(latencies, 99) / percentile(latencies, 50)


def queue(due: Sequence[float], work: float) -> list[float]:
    """Latencies at a server that takes `work` seconds for every request, one after the other, and nothing else."""
    free, latencies = 0.0, []
    for time in due:
        free = max(time, free) + work
        latencies.append(free - time)
    return latencies


def capacity(cells: Cells, arm: str, workload: str) -> float:
    """The most answers a second that any number of callers got."""
    found = [cell for cell in cells.rounds if (cell.arm, cell.workload) == (arm, workload)]
    return max(percentile(cells.throughputs(cell), 50) for cell in found)


def measure(site: Site, cells: Cells, name: str, workload: str, *, arrivals: Arrivals, count: int) -> OpenLoop:
    """So many requests at `SHARE` of the capacity."""
    arm, rate = site.arms[name], SHARE * capacity(cells, name, workload)
    run = arm.run(site.clicks.of(workload, arm, count), due=schedule(arrivals, rate, count))
    return OpenLoop(name, workload, arrivals, rate, site.client.run(run).latencies)


def as_table(loops: Sequence[OpenLoop]) -> str:
    """All of them."""
    rows = []
    for loop in loops:
        p50, p95, p99 = (percentile(loop.latencies, percent) * 1e3 for percent in (50, 95, 99))
        how = (loop.workload, loop.arrivals, loop.arm, loop.rate, len(loop.latencies))
        rows.append((*how, p50, p95, p99, loop.tail(), loop.queue_tail()))
    times = ("p50 ms", "p95 ms", "p99 ms", "p99 / p50", "of an ideal queue")
    return table(("", "arrivals", "arm", "requests/s", "requests", *times), rows)
