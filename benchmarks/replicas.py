"""A simulation of replicas behind a balancer: requests come, and share the cores with those that are there.

A replica is modelled as the service is built: clicks on known images and on new ones have queues of their own, of each
so many are under way at once, all of these share the cores, and beyond a limit a request is refused.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

KNOWN, NEW = KINDS = ("known", "new")
AT_ONCE = 2
"""Requests of each kind that a replica of two cores works on at once; the others of that kind wait."""
ROOM = 64
"""Requests that a replica has in all, `MOBILE_SAM_MAX_REQUESTS` for each of two API workers; others are refused."""
WARM_UP = 0.1
"""Share of the requests that are not counted."""

Balancer = Callable[[Sequence["Replica"], random.Random], "Replica"]


@dataclass(frozen=True)
class Work:
    """What a request takes."""

    core_seconds: float
    """On average."""
    alone: float
    """Seconds that one takes on a replica that has nothing else to do."""
    spread: float = 0.0
    """Of the logarithm: the work of requests is spread log-normally."""

    @property
    def cores(self) -> float:
        """How many it can use."""
        return self.core_seconds / self.alone

    def draw(self, source: random.Random) -> float:
        """The core-seconds of a request."""
        return self.core_seconds * source.lognormvariate(-(self.spread**2) / 2, self.spread)


@dataclass
class Job:
    """A request on a replica."""

    kind: str
    came: float
    left: float
    """Core-seconds."""


@dataclass
class Replica:
    """A machine with the service."""

    cores: float
    works: dict[str, Work]
    active: list[Job] = field(default_factory=list)
    waiting: dict[str, deque[Job]] = field(default_factory=lambda: {kind: deque() for kind in KINDS})
    now: float = 0.0
    version: int = 0
    """Grows with every change: what was expected before it does not happen."""

    @property
    def load(self) -> int:
        """Requests that are there."""
        return len(self.active) + sum(map(len, self.waiting.values()))

    def rates(self) -> list[float]:
        """Cores that each active request has."""
        wanted = [self.works[job.kind].cores for job in self.active]
        scale = min(1.0, self.cores / sum(wanted)) if wanted else 1.0
        return [cores * scale for cores in wanted]

    def advance(self, to: float) -> None:
        """Let time pass, in which nothing begins or ends."""
        for job, rate in zip(self.active, self.rates(), strict=True):
            job.left -= rate * (to - self.now)
        self.now = to

    def admit(self, job: Job) -> None:
        """Begin a request, or let it wait."""
        if sum(one.kind == job.kind for one in self.active) < AT_ONCE:
            self.active.append(job)
        else:
            self.waiting[job.kind].append(job)

    def finish(self) -> Job:
        """End the request that is nearest to its end; the next of its kind begins."""
        left = [job.left / rate for job, rate in zip(self.active, self.rates(), strict=True)]
        job = self.active.pop(left.index(min(left)))
        if self.waiting[job.kind]:
            self.active.append(self.waiting[job.kind].popleft())
        return job

    def next_end(self) -> float | None:
        """When the next request ends, should nothing else happen."""
        if not self.active:
            return None
        return self.now + min(max(0.0, job.left) / rate for job, rate in zip(self.active, self.rates(), strict=True))


@dataclass
class Outcome:
    """What came of it."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    """From coming to being answered, of each kind."""
    refused: int = 0
    came: int = 0


def least_busy(replicas: Sequence[Replica], source: random.Random) -> Replica:
    """The replica with the fewest requests; among equals any."""
    fewest = min(replica.load for replica in replicas)
    return source.choice([replica for replica in replicas if replica.load == fewest])


def any_one(replicas: Sequence[Replica], source: random.Random) -> Replica:
    """Any replica: as many callers, each of whom always gets the same one, look from there."""
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
) -> Outcome:
    """Let requests come to replicas.

    Args:
        works: what requests of each kind take.
        times: when they come, in seconds, ascending.
        new_share: of requests on new images, 0 to 1.
        count: of replicas.
        cores: of each.
        balancer: chooses the replica of a request.
        seed: of all chance in it.
    """
    source = random.Random(seed)
    replicas = [Replica(cores, works) for _ in range(count)]
    outcome, ends = Outcome(), list[tuple[float, int, int]]()
    number = {id(replica): index for index, replica in enumerate(replicas)}
    counted_from = times[int(len(times) * WARM_UP)] if times else 0.0

    def expect(replica: Replica) -> None:
        replica.version += 1
        if (end := replica.next_end()) is not None:
            heapq.heappush(ends, (end, number[id(replica)], replica.version))

    def pass_until(time: float) -> None:
        while ends and ends[0][0] <= time:
            end, index, version = heapq.heappop(ends)
            replica = replicas[index]
            if version == replica.version:
                replica.advance(end)
                job = replica.finish()
                if job.came >= counted_from:
                    outcome.seconds[job.kind].append(end - job.came)
                expect(replica)

    for time in times:
        pass_until(time)
        replica = balancer(replicas, source)
        counts = time >= counted_from
        outcome.came += counts
        if replica.load >= ROOM:
            outcome.refused += counts
            continue
        replica.advance(time)
        kind = NEW if source.random() < new_share else KNOWN
        replica.admit(Job(kind, time, works[kind].draw(source)))
        expect(replica)
    pass_until(math.inf)
    return outcome
