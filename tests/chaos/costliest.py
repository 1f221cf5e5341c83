"""The costliest valid requests, searched against a running service: `python -m tests.chaos.costliest PORT PID`.

A coordinate search over the space of requests: from a cheap one it goes through the dimensions, takes of each the best
option, and goes round until nothing improves; then it begins anew at a random point of a seed. It prints what it found.
"""

from __future__ import annotations

import argparse
import functools
import http.client
import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import psutil

from tests.chaos import hostile
from tests.chaos.callers import JSON
from tests.chaos.request_space import (
    OPTIONS,
    SPACE,
    Point,
    Space,
    described,
    dimensions,
    point,
    relevant,
    renewed,
    request,
)

FITS = re.compile(rb'"expected":\s*"at most (\d+) ')
"""What a refusal says would be answered."""
IDLE_SHARE = 0.25
"""Of a core: a service that uses less has nothing to do."""


Value = Callable[[Point], float]


@dataclass(frozen=True)
class Cost:
    """What one request cost."""

    status: int
    """0: no answer within the time of a trial."""
    work_s: float
    """Of all cores together, that spent after the caller has left included."""
    took_s: float
    sent: int
    received: int
    objects: int | None = None
    """As many as the service allows, where it does not allow as many as the point has."""


@dataclass(frozen=True)
class Found:
    """A point and what it gave."""

    point: Point
    value: float


def climb(space: Space, value: Value, over: Callable[[], bool], seed: int = 0) -> Found:
    """Search the point of the greatest value.

    Args:
        space: the options of each dimension; the search begins at the first of each.
        value: of a point; asked once for each.
        over: whether the budget is spent; asked before each point but the first.
        seed: of the points where the search begins anew.
    """
    draw = random.Random(seed)
    asked: dict[Point, float] = {}
    best = Found(tuple(options[0] for options in space.values()), float("-inf"))
    here = best
    every = 1
    for options in space.values():
        every *= len(options)

    def visit(point: Point) -> float:
        nonlocal best
        if point not in asked:
            asked[point] = value(point)
            best = max(best, Found(point, asked[point]), key=lambda found: found.value)
        return asked[point]

    here = Found(here.point, visit(here.point))
    while True:
        before = here.value
        for axis, options in enumerate(space.values()):
            for option in options:
                if over() or len(asked) == every:
                    return best
                point = (*here.point[:axis], option, *here.point[axis + 1 :])
                here = max(here, Found(point, visit(point)), key=lambda found: found.value)
        if here.value <= before:
            point = tuple(draw.choice(options) for options in space.values())
            if over():
                return best
            here = Found(point, visit(point))


class Trials:
    """Asks a service once for each point and keeps what that cost."""

    def __init__(self, port: int, family: Callable[[], list[psutil.Process]], limit_s: float = 10.0) -> None:
        """Make none yet.

        Args:
            port: of a service of this machine that nobody else asks meanwhile.
            family: gives its processes.
            limit_s: seconds that an answer may take; the caller then hangs up.
        """
        self._port, self._family, self._limit_s = port, family, limit_s
        self.costs: dict[Point, Cost] = {}

    def cost(self, point: Point) -> Cost:
        """The cost of a point's request, measured or known."""
        point = relevant(point)
        if point not in self.costs:
            chosen = dict(zip(SPACE, point, strict=True))
            if chosen["way"] != "new":
                whole = tuple({"path": "/embed", "way": "known"}.get(name, option) for name, option in chosen.items())
                self._ask(*request(relevant(whole)))
            self.costs[point] = self._measure(point)
        return self.costs[point]

    def request(self, asked: Point) -> hostile.Request:
        """The request of a point, as it was measured."""
        varied = dict(zip(SPACE, asked, strict=True))["way"] == "new"
        return hostile.Request(*request(asked, self.cost(asked).objects), renewed if varied else None)

    def work(self, point: Point) -> float:
        """Seconds of work."""
        return self.cost(point).work_s

    def gain(self, point: Point) -> float:
        """Bytes of a good answer for each byte sent."""
        cost = self.cost(point)
        return cost.received / cost.sent if cost.status == 200 else 0.0

    def dearest(self) -> dict[str, Point]:
        """The points that cost most: of each path, of those answered within half a second, and in bytes."""
        good = [point for point, cost in self.costs.items() if cost.status in (0, 200, 504)]
        kinds: dict[str, Value] = {
            f"work at {path}": functools.partial(lambda path, point: (point[0] == path) * self.work(point), path)
            for path in OPTIONS
        }
        kinds["work answered within 0.5 s"] = lambda point: (self.cost(point).took_s < 0.5) * self.work(point)
        kinds["bytes for each byte sent"] = self.gain
        kinds["bytes"] = lambda point: float(self.cost(point).received)
        return {kind: max(good, key=value) for kind, value in kinds.items()}

    def _measure(self, point: Point, objects: int | None = None) -> Cost:
        path, body = request(point, objects)
        before, began = self._used(), time.monotonic()
        status, received, start = self._ask(path, body)
        took, last = time.monotonic() - began, self._used()
        if status == 422 and objects is None and (fits := FITS.search(start)) and int(fits[1]):
            return self._measure(point, int(fits[1]))
        while time.monotonic() - began < took + self._limit_s:
            time.sleep(0.1)
            if (now := self._used()) - last < 0.1 * IDLE_SHARE:
                break
            last = now
        return Cost(status, last - before, took, len(body), received, objects)

    def _ask(self, path: str, body: bytes) -> tuple[int, int, bytes]:
        """The status, the bytes of the answer, and those of its beginning."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=self._limit_s)
        over, received, start = time.monotonic() + self._limit_s, 0, b""
        try:
            connection.request("POST", path, body, JSON)
            response = connection.getresponse()
            while (data := response.read1(2**20)) and time.monotonic() < over:
                received += len(data)
                start = start or data
        except (OSError, http.client.HTTPException):
            return 0, received, start
        finally:
            connection.close()
        return 0 if data else response.status, received, start

    def _used(self) -> float:
        return sum(sum(process.cpu_times()[:2]) for process in self._family() if process.is_running())


def search(trials: Trials, seconds: float, seed: int = 0) -> dict[str, Point]:
    """Search for so long, for work at each path and for bytes.

    Returns:
        The dearest of all that was tried, by kind.
    """
    began, share = time.monotonic(), 0.0
    for path, value, part in (
        ("/mobile_sam", trials.work, 0.45),
        ("/mobile_sam", trials.gain, 0.2),
        ("/everything", trials.work, 0.25),
        ("/embed", trials.work, 0.1),
    ):
        share += part
        names = dimensions(path)

        def at(here: Point, path: str = path, names: list[str] = names, value: Value = value) -> float:
            return value(point(path=path, **dict(zip(names, here, strict=True))))

        until = began + share * seconds
        climb({name: SPACE[name] for name in names}, at, lambda until=until: time.monotonic() > until, seed)  # type: ignore[misc]
    return trials.dearest()


def report(trials: Trials, found: Mapping[str, Point]) -> str:
    """A line for each of the dearest."""
    lines = [f"of {len(trials.costs)} requests tried:"]
    for kind, dearest in found.items():
        cost = trials.cost(dearest)
        fewer = f", but {cost.objects} objects as more are refused" if cost.objects else ""
        took = f"{cost.work_s:.1f} s of work in {cost.took_s:.1f} s"
        figures = f"{cost.status}, {took}, {cost.sent} bytes sent, {cost.received} received"
        lines.append(f"most {kind}: {described(dearest)}{fewer}: {figures}")
    return "\n".join(lines)


def main() -> None:
    """Read the command line, search, and print."""
    parser = argparse.ArgumentParser(description="Search the costliest valid requests.")
    parser.add_argument("port", type=int)
    parser.add_argument("pid", type=int, help="of the service's first process")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--limit", type=float, default=60, help="seconds that an answer may take")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    first = psutil.Process(options.pid)
    trials = Trials(options.port, lambda: [first, *first.children(recursive=True)], options.limit)
    print(report(trials, search(trials, options.seconds, options.seed)))


if __name__ == "__main__":
    main()
