"""Simulation of replicas behind a load balancer.

A replica is modelled after the service: clicks on known and on new images have separate queues with a limit of active
requests each, all active requests share the cores, and requests beyond a total limit are refused.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

KNOWN, NEW = KINDS = ("known", "new")
MAX_ACTIVE = 2
"""Active requests of each kind on a replica of two cores; the others wait."""
MAX_REQUESTS = 64
"""Requests of a replica, active or waiting: `MOBILE_SAM_MAX_REQUESTS` for each of two API workers."""
WARM_UP = 0.1
"""Share of the requests that is not counted."""

Balancer = Callable[[Sequence["Replica"], random.Random], "Replica"]


@dataclass(frozen=True)
class Work:
    """Cost of a request."""

    core_seconds: float
    """Mean CPU seconds."""
    alone_s: float
    """Latency on an idle replica."""
    spread: float = 0.0
    """Standard deviation of the logarithm: costs are log-normal."""

    @property
    def cores(self) -> float:
        """Return the number of cores that the request can use."""
        return self.core_seconds / self.alone_s

    def draw(self, source: random.Random) -> float:
        """Return random core-seconds for a request."""
        return self.core_seconds * source.lognormvariate(-(self.spread**2) / 2, self.spread)


@dataclass
class Job:
    """Request on a replica."""

    kind: str
    arrived_at: float
    remaining: float
    """Remaining core-seconds."""


@dataclass
class Replica:
    """Machine that runs the service."""

    cores: float
    works: dict[str, Work]
    active: list[Job] = field(default_factory=list)
    waiting: dict[str, deque[Job]] = field(default_factory=lambda: {kind: deque() for kind in KINDS})
    now: float = 0.0
    version: int = 0
    """Count of changes; an event scheduled for an older version is void."""

    @property
    def load(self) -> int:
        """Return the number of requests, active and waiting."""
        return len(self.active) + sum(map(len, self.waiting.values()))

    def rates(self) -> list[float]:
        """Return the cores of each active request."""
        wanted = [self.works[job.kind].cores for job in self.active]
        scale = min(1.0, self.cores / sum(wanted)) if wanted else 1.0
        return [cores * scale for cores in wanted]

    def advance(self, to: float) -> None:
        """Advance to a time before which no request starts or ends."""
        for job, rate in zip(self.active, self.rates(), strict=True):
            job.remaining -= rate * (to - self.now)
        self.now = to

    def admit(self, job: Job) -> None:
        """Start a request, or queue it."""
        if sum(one.kind == job.kind for one in self.active) < MAX_ACTIVE:
            self.active.append(job)
        else:
            self.waiting[job.kind].append(job)

    def finish(self) -> Job:
        """Remove the active request with the least time left and start the next of its kind."""
        left = [job.remaining / rate for job, rate in zip(self.active, self.rates(), strict=True)]
        job = self.active.pop(left.index(min(left)))
        if self.waiting[job.kind]:
            self.active.append(self.waiting[job.kind].popleft())
        return job

    def next_end(self) -> float | None:
        """Return the time at which the next request ends if none arrives before."""
        if not self.active:
            return None
        return self.now + min(
            max(0.0, job.remaining) / rate for job, rate in zip(self.active, self.rates(), strict=True)
        )


@dataclass
class SimulationResult:
    """Latencies and refusals."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    """Latencies by kind."""
    refused: int = 0
    arrived: int = 0


def least_busy(replicas: Sequence[Replica], source: random.Random) -> Replica:
    """Return the replica with the fewest requests, at random among equals."""
    fewest = min(replica.load for replica in replicas)
    return source.choice([replica for replica in replicas if replica.load == fewest])


def random_replica(replicas: Sequence[Replica], source: random.Random) -> Replica:
    """Return a random replica, which models many callers each bound to one replica."""
    return source.choice(replicas)


def simulate(
    works: dict[str, Work],
    times: Sequence[float],
    new_share: float,
    *,
    count: int,
    cores: float,
    balancer: Balancer,
    seed: int,
) -> SimulationResult:
    """Simulate requests to replicas.

    Args:
        works: cost of a request, by kind.
        times: arrival times in seconds, ascending.
        new_share: share of requests on new images, 0 to 1.
        count: number of replicas.
        cores: cores per replica.
        balancer: function that chooses the replica for a request.
        seed: seed of the random numbers.
    """
    source = random.Random(seed)
    replicas = [Replica(cores, works) for _ in range(count)]
    result, ends = SimulationResult(), list[tuple[float, int, int]]()
    index_of = {id(replica): index for index, replica in enumerate(replicas)}
    counted_from = times[int(len(times) * WARM_UP)] if times else 0.0

    def schedule_end(replica: Replica) -> None:
        replica.version += 1
        if (end := replica.next_end()) is not None:
            heapq.heappush(ends, (end, index_of[id(replica)], replica.version))

    def advance_to(time: float) -> None:
        while ends and ends[0][0] <= time:
            end, index, version = heapq.heappop(ends)
            replica = replicas[index]
            if version == replica.version:
                replica.advance(end)
                job = replica.finish()
                if job.arrived_at >= counted_from:
                    result.seconds[job.kind].append(end - job.arrived_at)
                schedule_end(replica)

    for time in times:
        advance_to(time)
        replica = balancer(replicas, source)
        counts = time >= counted_from
        result.arrived += counts
        if replica.load >= MAX_REQUESTS:
            result.refused += counts
            continue
        replica.advance(time)
        kind = NEW if source.random() < new_share else KNOWN
        replica.admit(Job(kind, time, works[kind].draw(source)))
        schedule_end(replica)
    advance_to(math.inf)
    return result
