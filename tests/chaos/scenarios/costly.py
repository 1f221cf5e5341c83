"""Costliest valid requests, and large answers that the caller does not read."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from tests.chaos import costliest, hostile, victims
from tests.chaos.callers import crowd, mixed
from tests.chaos.figures import MEGABYTE, Figure, Start, port_of, restarts
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
        attack = _Attack(server, f"costliest valid requests for {seconds:g} s")
        trials = costliest.Trials(port_of(server), lambda: victims.family(server))
        found = costliest.search(trials, search_s)
        print(costliest.report(trials, found), flush=True)
        requests = [trials.request(found_point) for found_point in dict.fromkeys(found.values())]
        yield from attack.figures(seconds, rest_s, hostile.flood_requests, requests, max_slowdown=4)


def unread(start: Start, seconds: float = 30, rest_s: float = 20) -> Iterator[Figure]:
    """Request the largest answers and read nothing, or a kilobyte per second."""
    with start() as server:
        attack = _Attack(server, f"large answers not read, or at 1 kB/s, for {seconds:g} s")
        trials = costliest.Trials(port_of(server), lambda: victims.family(server))
        requests = [trials.request(largest) for largest in LARGEST_ANSWERS]
        print(costliest.report(trials, {f"bytes {n}": asked for n, asked in enumerate(trials.costs)}), flush=True)
        yield from attack.figures(seconds, rest_s, hostile.leave_unread, requests)


class _Attack:
    """Attack next to an innocent caller, over twice as many connections as the service admits requests."""

    def __init__(self, server: Server, name: str) -> None:
        """Measure the service before the attack.

        Args:
            server: the service to attack.
            name: name of the attack.
        """
        self._server, self._name = server, name
        self._innocent = InnocentCaller(server)
        with crowd(port_of(server), mixed(images=10, new=0.5, prepared=20), 8):
            time.sleep(WARM_UP_S)
        self._workers = victims.workers(server)
        self._memory, self._shared = victims.memory(server), victims.shared_memory(server)

    def figures(
        self, seconds: float, rest_s: float, attempt: hostile.Attempt, *more: Any, max_slowdown: float | None = None
    ) -> Iterator[Figure]:
        """Attack, and measure the service during and after the attack.

        Args:
            seconds: length of the attack.
            rest_s: seconds after the attack until memory is measured again.
            attempt: attempt that each connection repeats.
            more: further arguments of the attempt.
            max_slowdown: goal for the innocent caller, see `InnocentCaller.figures`.
        """
        server, name = self._server, self._name
        connections = 2 * Settings.from_environment().max_requests * len(self._workers)
        attacking = hostile.attacking(attempt, port_of(server), connections, seconds, *more)
        with _peaks(server) as peaks, self._innocent.clicking(), attacking as attack:
            counts = attack.result()
        seen = ", ".join(f"{result} {count}" for result, count in counts.most_common())
        yield Figure(name, f"good answers to {connections} attackers ({seen})", counts["200"], 1, at_least=True)
        yield from self._innocent.figures(name, max_slowdown)
        yield Figure(name, "restarts of Triton", restarts(server), 0)
        yield Figure(name, "workers that died", len(set(self._workers) - set(victims.workers(server))), 0)
        memory, shared = peaks()
        yield Figure(name, "peak of memory", memory / MEGABYTE, MEMORY_MB, "MB")
        yield Figure(name, "peak of shared memory", shared / MEGABYTE, SHARED_MEMORY_MB, "MB")
        time.sleep(rest_s)
        for what, now, before in (
            ("memory", victims.memory(server), self._memory),
            ("shared memory", victims.shared_memory(server), self._shared),
        ):
            label = f"{what} {rest_s:g} s later ({before / MEGABYTE:.0f} MB before)"
            yield Figure(name, label, now / MEGABYTE, 1.1 * before / MEGABYTE, "MB")


@contextmanager
def _peaks(server: Server) -> Iterator[Callable[[], tuple[int, int]]]:
    """Sample the service's memory twice per second; yield a function that returns the peaks of both kinds."""
    peaks, over = [0, 0], threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            with contextlib.suppress(psutil.Error):
                peaks[:] = max(peaks[0], victims.memory(server)), max(peaks[1], victims.shared_memory(server))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield lambda: (peaks[0], peaks[1])
    finally:
        over.set()
        watcher.join()
