"""Search for the costliest valid requests to a running service.

Coordinate search over the space of requests: it starts from a cheap request, picks the best option of one dimension
after the other until none improves, and restarts from a random point.
"""

import http.client
import math
import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.chaos import hostile, victims
from tests.chaos.callers import JSON, NONE
from tests.chaos.request_space import DIMENSIONS, SPACE, Point, Space, describe, dimensions, point, renew_image, request
from tests.chaos.tool_requests import TOOL_PATHS
from tests.e2e.server import Server

FITS = re.compile(rb"at most (\d+) (?:objects|masks) ")
"""Number of objects that a refusal allows; some tools get it with status 200."""
TIMEOUT_S = 10.0
IDLE_SHARE = 0.25
"""Share of a core below which the service counts as idle."""


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

    @property
    def gain(self) -> float:
        """Return the bytes received per byte sent; 0 unless the request succeeded."""
        return self.received / self.sent if self.status == 200 else 0.0


def climb(
    space: Space, value: Callable[[Point], float], over: Callable[[], bool], start: Point | None = None, seed: int = 0
) -> Point:
    """Return the point with the greatest value that is found.

    Args:
        space: options of each dimension.
        value: value of a point; called once per point.
        over: predicate for a spent budget; called before each point but the first.
        start: point where the search starts; the first option of each dimension by default.
        seed: seed of the points where the search restarts.
    """
    draw = random.Random(seed)
    values: dict[Point, float] = {}

    def visit(at: Point) -> float:
        if at not in values:
            values[at] = value(at)
        return values[at]

    here: Point = start or tuple(options[0] for options in space.values())
    visit(here)
    while True:
        before = here
        for axis, options in enumerate(space.values()):
            for option in options:
                if over() or len(values) == math.prod(len(options) for options in space.values()):
                    return max(values, key=visit)
                here = max(here, (*here[:axis], option, *here[axis + 1 :]), key=visit)
        if here == before:
            here = tuple(draw.choice(options) for options in space.values())


class Trials:
    """Costs of requests to a service without other callers, each point measured once."""

    def __init__(self, server: Server, headers: Mapping[str, str] = NONE, timeout_s: float = TIMEOUT_S) -> None:
        self._server, self._headers, self._timeout_s = server, headers, timeout_s
        self.costs: dict[Point, Cost] = {}

    def cost(self, at: Point) -> Cost:
        """Return the cost of a point's request, measured if it is not known."""
        if at not in self.costs:
            chosen = dict(zip(SPACE, at, strict=True))
            if chosen["image_source"] != "new":
                self._ask(*request(point(**(chosen | {"path": "/embed", "image_source": "known"}))))
            self.costs[at] = self._measure(at)
        return self.costs[at]

    def request(self, at: Point) -> hostile.Request:
        """Return the request of a point, as it was measured."""
        varied = dict(zip(SPACE, at, strict=True))["image_source"] == "new"
        path, body, headers = request(at, self.cost(at).objects)
        return hostile.Request(path, body, {**self._headers, **headers}, renew_image if varied else None)

    def costliest(self) -> dict[str, Point]:
        """Return the costliest points by CPU time per path, by CPU time among fast answers, and by bytes."""
        kinds: dict[str, Callable[[Point, Cost], float]] = {
            f"work at {path}": lambda at, cost, path=path: (at[0] == path) * cost.work_s  # type: ignore[misc]
            for path in DIMENSIONS
        }
        kinds["work answered within 0.5 s"] = lambda _, cost: (cost.latency_s < 0.5) * cost.work_s
        kinds["bytes per byte sent"] = lambda _, cost: cost.gain
        kinds["bytes"] = lambda _, cost: float(cost.received)
        good = {at: cost for at, cost in self.costs.items() if cost.status in (0, 200, 504)}
        return {kind: max(good, key=lambda at, value=value: value(at, good[at])) for kind, value in kinds.items()}  # type: ignore[misc]

    def _measure(self, at: Point, objects: int | None = None) -> Cost:
        path, body, headers = request(at, objects)
        before, began = self._used(), time.monotonic()
        status, received, start = self._ask(path, body, headers)
        took, last = time.monotonic() - began, self._used()
        asked = objects or dict(zip(SPACE, at, strict=True))["objects"]
        if (fits := FITS.search(start)) and 0 < int(fits[1]) < asked:
            return self._measure(at, int(fits[1]))
        while time.monotonic() - began < took + self._timeout_s:
            time.sleep(0.1)
            if (now := self._used()) - last < 0.1 * IDLE_SHARE:
                break
            last = now
        return Cost(status, last - before, took, len(body), received, objects)

    def _ask(self, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, int, bytes]:
        """Send a request; return status, size of the answer and its first bytes."""
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=self._timeout_s)
        over, received, start = time.monotonic() + self._timeout_s, 0, b""
        try:
            connection.request("POST", path, body, {**JSON, **self._headers, **headers})
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
        return victims.cpu_seconds(victims.family(self._server))


def search(trials: Trials, seconds: float) -> dict[str, Point]:
    """Search for requests with the most work at each path, and with the most bytes.

    Returns:
        The costliest points of all that were tried, by kind.
    """
    until = time.monotonic()
    for path, value, share in (
        ("/mobile_sam", "work_s", 0.3),
        ("/mobile_sam", "gain", 0.1),
        ("/everything", "work_s", 0.2),
        ("/embed", "work_s", 0.05),
        *((path, "work_s", 0.35 / len(TOOL_PATHS)) for path in TOOL_PATHS),
    ):
        names = dimensions(path)

        def at(here: Point, path: str = path, names: list[str] = names, value: str = value) -> float:
            return float(getattr(trials.cost(point(path=path, **dict(zip(names, here, strict=True)))), value))

        until += share * seconds
        # The searches of tools are short: they start where another path has the most work.
        known = dict(zip(SPACE, point(), strict=True))
        if path in TOOL_PATHS:
            for own in ("/everything", "/mobile_sam"):
                found = dict(zip(SPACE, trials.costliest()[f"work at {own}"], strict=True))
                known |= {name: found[name] for name in dimensions(own)}
        start = tuple(known[name] for name in names)
        climb({name: SPACE[name] for name in names}, at, lambda until=until: time.monotonic() > until, start)  # type: ignore[misc]
    return trials.costliest()


def report(trials: Trials, found: Mapping[str, Point]) -> str:
    """Return a line per point."""
    lines = [f"of {len(trials.costs)} requests tried:"]
    for kind, at in found.items():
        cost = trials.cost(at)
        fewer = f", but {cost.objects} objects as more are refused" if cost.objects else ""
        work = f"{cost.work_s:.1f} s of work in {cost.latency_s:.1f} s"
        figures = f"{cost.status}, {work}, {cost.sent} bytes sent, {cost.received} received"
        lines.append(f"most {kind}: {describe(at)}{fewer}: {figures}")
    return "\n".join(lines)
