"""Costliest valid requests, and large answers that the caller does not read."""

import functools
import time
from collections.abc import Iterator, Sequence

from tests.chaos import hostile, victims
from tests.chaos.callers import crowd, mixed
from tests.chaos.costliest import Trials, report, search
from tests.chaos.figures import MEGABYTE, Figure, Start, died, listed, restarts
from tests.chaos.innocent import InnocentCaller
from tests.chaos.request_space import point
from tests.e2e.server import Server
from utils.settings import Settings

MEMORY_MB, SHARED_MEMORY_MB = 3072, 512
WARM_UP_S = 5.0
"""Time of normal load before the attack, so that memory is compared with that of a busy service."""
many_objects = functools.partial(point, image_source="by id", objects=256)
LARGEST_ANSWERS = (
    many_objects(mask_format="npy", segmented_image="cutout", low_res_mask=True, size=(5000, 5000)),
    many_objects(mask_format="json", segmented_image="cutout", size=(2000, 1500)),
    many_objects(low_res_mask=True, multimask_output=True),
)


def costly(start: Start, seconds: float = 60, search_s: float = 60, rest_s: float = 60) -> Iterator[Figure]:
    """Send the costliest requests that a search finds, from twice as many callers as the service admits."""
    with start() as server:
        attack = _Attack(server, f"costliest valid requests for {seconds:g} s", alone_s=6)
        trials = Trials(server)
        found = search(trials, search_s)
        print(report(trials, found), flush=True)
        requests = [trials.request(each) for each in dict.fromkeys(found.values())]
        yield from attack.figures(seconds, rest_s, hostile.flood_requests, requests, max_slowdown=4)


def unread(start: Start, seconds: float = 30, rest_s: float = 20) -> Iterator[Figure]:
    """Request the largest answers and read nothing, or a kilobyte per second."""
    with start() as server:
        attack = _Attack(server, f"large answers not read, or at 1 kB/s, for {seconds:g} s")
        trials = Trials(server)
        requests = [trials.request(largest) for largest in LARGEST_ANSWERS]
        print(report(trials, {f"bytes {n}": asked for n, asked in enumerate(trials.costs)}), flush=True)
        yield from attack.figures(seconds, rest_s, hostile.leave_unread, requests)


class _Attack:
    """Attack next to an innocent caller, over twice as many connections as the service admits requests."""

    def __init__(self, server: Server, name: str, alone_s: float = 0.0) -> None:
        """Measure the service before the attack.

        Args:
            server: the service to attack.
            name: name of the attack.
            alone_s: see `InnocentCaller`.
        """
        self._server, self._name = server, name
        self._innocent = InnocentCaller(server, alone_s)
        with crowd(server.port, mixed(images=10, new=0.5, prepared=20), 8):
            time.sleep(WARM_UP_S)
        self._workers = victims.workers(server)
        self._before = self._sizes()

    def _sizes(self) -> tuple[float, float]:
        """Return the megabytes of memory and of shared memory."""
        return victims.memory(self._server) / MEGABYTE, victims.shared_memory(self._server) / MEGABYTE

    def figures(
        self,
        seconds: float,
        rest_s: float,
        attempt: hostile.Attempt,
        requests: Sequence[hostile.Request],
        max_slowdown: float | None = None,
    ) -> Iterator[Figure]:
        """Attack, and measure the service during and after the attack.

        Args:
            seconds: length of the attack.
            rest_s: seconds after the attack until memory is measured again.
            attempt: attempt that each connection repeats.
            requests: requests to send.
            max_slowdown: goal for the innocent caller, see `InnocentCaller.figures`.
        """
        server, name = self._server, self._name
        connections = 2 * Settings.from_environment().max_requests * len(self._workers)
        attacking = hostile.attacking(attempt, server.port, connections, seconds, requests)
        with victims.sampling(self._sizes, 0.5) as sizes, self._innocent.clicking(), attacking as attack:
            counts = attack.result()
        label = f"good answers to {connections} attackers ({listed(counts)})"
        yield Figure(name, label, counts["200"], 1, at_least=True)
        yield from self._innocent.figures(name, max_slowdown)
        yield restarts(name, server)
        yield died(name, server, self._workers)
        kinds, goals = ("memory", "shared memory"), (MEMORY_MB, SHARED_MEMORY_MB)
        for kind, of_kind, goal in zip(kinds, zip(*sizes, strict=True), goals, strict=True):
            yield Figure(name, f"peak of {kind}", max(of_kind), goal, "MB")
        time.sleep(rest_s)
        for kind, now, before in zip(kinds, self._sizes(), self._before, strict=True):
            yield Figure(name, f"{kind} {rest_s:g} s later ({before:.0f} MB before)", now, 1.1 * before, "MB")
