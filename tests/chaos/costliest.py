"""Search for the costliest valid requests to a running service: `python -m tests.chaos.costliest PORT PID`.

Coordinate search over the space of requests: it starts from a cheap request, picks the best option of one dimension
after the other until none improves, and restarts from a random point.
"""

from __future__ import annotations

import argparse
import functools
import http.client
import math
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
    describe,
    dimensions,
    relevant,
    renew_image,
    request,
)
from tests.chaos.request_space import point as make_point

FITS = re.compile(rb'"expected":\s*"at most (\d+) ')
"""Number of objects that a refusal allows."""
IDLE_SHARE = 0.25
"""Share of a core below which the service counts as idle."""

Value = Callable[[Point], float]


@dataclass(frozen=True)
class Cost:
    """Measured cost of one request."""

    status: int
    """HTTP status; 0 if there was no answer in time."""
    work_s: float
    """CPU time of all cores, including work after the caller hung up."""
    latency_s: float
    sent: int
    received: int
    objects: int | None = None
    """Number of objects that the service allowed, if fewer than the point's."""


@dataclass(frozen=True)
class Found:
    """Point with its value."""

    point: Point
    value: float


def climb(space: Space, value: Value, over: Callable[[], bool], seed: int = 0) -> Found:
    """Search for the point with the greatest value.

    Args:
        space: options of each dimension; the search starts at the first of each.
        value: value of a point; called once per point.
        over: predicate for a spent budget; called before each point but the first.
        seed: seed of the points where the search restarts.
    """
    draw = random.Random(seed)
    asked: dict[Point, float] = {}
    best = Found(tuple(options[0] for options in space.values()), float("-inf"))
    here = best
    size = math.prod(len(options) for options in space.values())

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
                if over() or len(asked) == size:
                    return best
                point = (*here.point[:axis], option, *here.point[axis + 1 :])
                here = max(here, Found(point, visit(point)), key=lambda found: found.value)
        if here.value <= before:
            point = tuple(draw.choice(options) for options in space.values())
            if over():
                return best
            here = Found(point, visit(point))


class Trials:
    """Costs of requests, each point measured once."""

    def __init__(self, port: int, family: Callable[[], list[psutil.Process]], limit_s: float = 10.0) -> None:
        """Prepare measurements.

        Args:
            port: port of a service on this machine without other callers.
            family: function that returns the service's processes.
            limit_s: timeout of a request.
        """
        self._port, self._family, self._limit_s = port, family, limit_s
        self.costs: dict[Point, Cost] = {}

    def cost(self, point: Point) -> Cost:
        """Return the cost of a point's request, measured if it is not known."""
        point = relevant(point)
        if point not in self.costs:
            chosen = dict(zip(SPACE, point, strict=True))
            if chosen["image_source"] != "new":
                embed = tuple((chosen | {"path": "/embed", "image_source": "known"}).values())
                self._ask(*request(relevant(embed)))
            self.costs[point] = self._measure(point)
        return self.costs[point]

    def request(self, asked: Point) -> hostile.Request:
        """Return the request of a point, as it was measured."""
        varied = dict(zip(SPACE, asked, strict=True))["image_source"] == "new"
        return hostile.Request(*request(asked, self.cost(asked).objects), renew_image if varied else None)

    def work(self, point: Point) -> float:
        """Return the CPU seconds of a point's request."""
        return self.cost(point).work_s

    def gain(self, point: Point) -> float:
        """Return the bytes received per byte sent; 0 unless the request succeeded."""
        cost = self.cost(point)
        return cost.received / cost.sent if cost.status == 200 else 0.0

    def costliest(self) -> dict[str, Point]:
        """Return the costliest points by CPU time per path, by CPU time among fast answers, and by bytes."""
        good = [point for point, cost in self.costs.items() if cost.status in (0, 200, 504)]
        kinds: dict[str, Value] = {
            f"work at {path}": functools.partial(lambda path, point: (point[0] == path) * self.work(point), path)
            for path in OPTIONS
        }
        kinds["work answered within 0.5 s"] = lambda point: (self.cost(point).latency_s < 0.5) * self.work(point)
        kinds["bytes per byte sent"] = self.gain
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
        """Send a request; return status, size of the answer and its first bytes."""
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
    """Search for requests with the most work at each path, and with the most bytes.

    Returns:
        The costliest points of all that were tried, by kind.
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
            return value(make_point(path=path, **dict(zip(names, here, strict=True))))

        until = began + share * seconds
        climb({name: SPACE[name] for name in names}, at, lambda until=until: time.monotonic() > until, seed)  # type: ignore[misc]
    return trials.costliest()


def report(trials: Trials, found: Mapping[str, Point]) -> str:
    """Return a line per point."""
    lines = [f"of {len(trials.costs)} requests tried:"]
    for kind, point in found.items():
        cost = trials.cost(point)
        fewer = f", but {cost.objects} objects as more are refused" if cost.objects else ""
        work = f"{cost.work_s:.1f} s of work in {cost.latency_s:.1f} s"
        figures = f"{cost.status}, {work}, {cost.sent} bytes sent, {cost.received} received"
        lines.append(f"most {kind}: {describe(point)}{fewer}: {figures}")
    return "\n".join(lines)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Search for the costliest valid requests.")
    parser.add_argument("port", type=int, help="port of the service")
    parser.add_argument("pid", type=int, help="process id of the service's main process")
    parser.add_argument("--seconds", type=float, default=600, help="length of the search")
    parser.add_argument("--limit", type=float, default=60, help="timeout of a request in seconds")
    parser.add_argument("--seed", type=int, default=0, help="seed of the restarts")
    options = parser.parse_args()
    first = psutil.Process(options.pid)
    trials = Trials(options.port, lambda: [first, *first.children(recursive=True)], options.limit)
    print(report(trials, search(trials, options.seconds, options.seed)))


if __name__ == "__main__":
    main()
