"""Search for the costliest valid requests to a running service.

Coordinate search over the space of requests: it starts from a cheap request, picks the best option of one dimension
after the other until none improves, and restarts from a random point.
"""

import random
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import requests

from harness import Server, seconds_until
from harness.load import Request
from harness.server import cpu_seconds
from tests.chaos.callers import NONE
from tests.chaos.request_space import SPACE, Point, Space, describe, point, request
from tests.chaos.tool_requests import TOOL_PATHS

FITS = re.compile(rb"at most (\d+) (?:objects|masks) ")
"""Number of objects that a refusal allows; some tools get it with status 200."""
TIMEOUT_S = 10.0
IDLE_SHARE = 0.25
"""Share of a core below which the service counts as idle."""
SHARES = {"/mobile_sam": 0.4, "/everything": 0.2, "/embed": 0.05, **dict.fromkeys(TOOL_PATHS, 0.35 / len(TOOL_PATHS))}
"""Parts of the search's time."""


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


KINDS: dict[str, Callable[[Point, Cost], float]] = {
    **{f"work at {path}": lambda at, cost, path=path: (at[0] == path) * cost.work_s for path in SHARES},  # type: ignore[misc]
    "work answered within 0.5 s": lambda _, cost: (cost.latency_s < 0.5) * cost.work_s,
    "bytes per byte sent": lambda _, cost: (cost.status == 200) * cost.received / cost.sent,
    "bytes": lambda _, cost: float(cost.received),
}
"""Values by which requests are among the costliest."""


def climb(
    space: Space, value: Callable[[Point], float], over: Callable[[], bool], start: Point, seed: int = 0
) -> Point:
    """Return the point with the greatest value that is found.

    Args:
        space: options of each dimension.
        value: value of a point.
        over: predicate for a spent budget; called before each point but the first.
        start: point where the search starts.
        seed: seed of the points where the search restarts.
    """
    draw, best, here = random.Random(seed), start, start
    while True:
        before = here
        for axis, options in enumerate(space.values()):
            for option in options:
                if over():
                    return max(best, here, key=value)
                here = max(here, (*here[:axis], option, *here[axis + 1 :]), key=value)
        if here == before:
            best = max(best, here, key=value)
            here = tuple(draw.choice(options) for options in space.values())


class Trials:
    """Costs of requests to a service without other callers, each measured once."""

    def __init__(self, server: Server, headers: Mapping[str, str] = NONE, timeout_s: float = TIMEOUT_S) -> None:
        self._server, self._headers, self._timeout_s = server, headers, timeout_s
        self.costs: dict[Point, Cost] = {}
        self._same: dict[tuple[str, int], Cost] = {}
        """By path and body, because not every dimension affects every path."""

    def cost(self, at: Point) -> Cost:
        """Return the cost of a point's request, measured if it is not known."""
        if at not in self.costs:
            asked = request(at)
            key = (asked.path, hash(asked.body))
            if key not in self._same:
                if not asked.renew:
                    file = dict(zip(SPACE, at, strict=True)) | {"path": "/embed", "image_source": "known"}
                    self._ask(request(point(**file), None, self._headers))
                self._same[key] = self._measure(at)
            self.costs[at] = self._same[key]
        return self.costs[at]

    def request(self, at: Point) -> Request:
        """Return the request of a point, as it was measured."""
        return request(at, self.cost(at).objects, self._headers)

    def costliest(self) -> dict[str, Point]:
        """Return the costliest points of each kind."""
        good = {at: cost for at, cost in self.costs.items() if cost.status in (0, 200, 504)}
        return {kind: max(good, key=lambda at, value=value: value(at, good[at])) for kind, value in KINDS.items()}  # type: ignore[misc]

    def _measure(self, at: Point, objects: int | None = None) -> Cost:
        asked = request(at, objects, self._headers)
        before, began = self._used(), time.monotonic()
        status, received, start = self._ask(asked)
        took, last = time.monotonic() - began, self._used()
        most = objects or dict(zip(SPACE, at, strict=True))["objects"]
        if (fits := FITS.search(start)) and 0 < int(fits[1]) < most:
            return self._measure(at, int(fits[1]))

        def idle() -> bool:
            nonlocal last
            time.sleep(0.1)
            earlier, last = last, self._used()
            return last - earlier < 0.1 * IDLE_SHARE

        seconds_until(idle, self._timeout_s)
        return Cost(status, last - before, took, len(asked.body or b""), received, objects)

    def _ask(self, asked: Request) -> tuple[int, int, bytes]:
        """Send a request; return status, size of the answer and its first bytes."""
        over, received, start = time.monotonic() + self._timeout_s, 0, b""
        headers = {**asked.headers, "Accept-Encoding": "identity"}
        try:
            with requests.post(
                self._server.url + asked.path, asked.content(), headers=headers, stream=True, timeout=self._timeout_s
            ) as response:
                for data in response.iter_content(2**20):
                    received, start = received + len(data), start or data
                    if time.monotonic() > over:
                        return 0, received, start
                return response.status_code, received, start
        except requests.RequestException:
            return 0, received, start

    def _used(self) -> float:
        return cpu_seconds(self._server.family())


def search(trials: Trials, seconds: float) -> dict[str, Point]:
    """Search for requests with the most work at each path; return the costliest points that were tried, by kind."""
    until, start = time.monotonic(), point()
    for path, share in SHARES.items():
        if path in TOOL_PATHS:  # their searches are short: they start where another path has the most work
            start = trials.costliest()["work at /mobile_sam"]
        until += share * seconds
        space, begin = {**SPACE, "path": (path,)}, (path, *start[1:])
        climb(space, lambda at: trials.cost(at).work_s, lambda until=until: time.monotonic() > until, begin)  # type: ignore[misc]
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
