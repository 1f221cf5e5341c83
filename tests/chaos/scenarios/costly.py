"""The costliest valid requests, and large answers that nobody reads."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from tests.chaos import costliest, hostile, victims
from tests.chaos.callers import crowd, mixed
from tests.chaos.figures import MEGABYTE, Figure, Start, port_of, restarts
from tests.chaos.innocent import Innocent
from tests.chaos.request_space import point
from tests.e2e.server import Server
from utils.settings import Settings

MEMORY_MB, SHARED_MEMORY_MB = 3072, 512
WARM_S = 5.0
"""Of usual load, so that memory before is that of a service at work."""
LARGEST_ANSWERS = (
    point(way="by id", mask_format="npy", segmented_image="cutout", low_res_mask=True, objects=256, size=(5000, 5000)),
    point(way="by id", mask_format="json", segmented_image="cutout", objects=256, size=(2000, 1500)),
    point(way="by id", low_res_mask=True, multimask_output=True, objects=256),
)


def costly(start: Start, seconds: float = 60, search_s: float = 60, rest_s: float = 60) -> Iterator[Figure]:
    """The costliest requests that a search finds, from twice as many callers as the service takes."""
    with start() as server:
        attack = _Attack(server, f"costliest valid requests for {seconds:g} s")
        trials = costliest.Trials(port_of(server), lambda: victims.family(server))
        found = costliest.search(trials, search_s)
        print(costliest.report(trials, found), flush=True)
        requests = [trials.request(dearest) for dearest in dict.fromkeys(found.values())]
        yield from attack.figures(seconds, rest_s, hostile.flood_requests, requests, most=4)


def unread(start: Start, seconds: float = 30, rest_s: float = 20) -> Iterator[Figure]:
    """The largest answers, of which nobody reads a byte, or a kilobyte a second."""
    with start() as server:
        attack = _Attack(server, f"large answers not read, or at 1 kB/s, for {seconds:g} s")
        trials = costliest.Trials(port_of(server), lambda: victims.family(server))
        requests = [trials.request(largest) for largest in LARGEST_ANSWERS]
        print(costliest.report(trials, {f"bytes {n}": asked for n, asked in enumerate(trials.costs)}), flush=True)
        yield from attack.figures(seconds, rest_s, hostile.leave_unread, requests)


class _Attack:
    """On a service beside an innocent caller: from twice as many connections as the service takes requests."""

    def __init__(self, server: Server, name: str) -> None:
        """Look how the service is before anything hostile has come.

        Args:
            server: that is attacked.
            name: of the attack.
        """
        self._server, self._name = server, name
        self._innocent = Innocent(server)
        with crowd(port_of(server), mixed(images=10, new=0.5, prepared=20), 8):
            time.sleep(WARM_S)
        self._workers = victims.workers(server)
        self._memory, self._shared = victims.memory(server), victims.shared_memory(server)

    def figures(
        self, seconds: float, rest_s: float, attempt: hostile.Attempt, *more: Any, most: float | None = None
    ) -> Iterator[Figure]:
        """Attack, and look how the service is then.

        Args:
            seconds: length of the attack.
            rest_s: seconds after which its memory is to be as before.
            attempt: of each connection.
            more: of its arguments.
            most: times as long as alone that the innocent caller's clicks may take.
        """
        server, name = self._server, self._name
        connections = 2 * Settings.from_environment().max_requests * len(self._workers)
        attacking = hostile.attacking(attempt, port_of(server), connections, seconds, *more)
        with _peaks(server) as peaks, self._innocent.clicking(), attacking as attack:
            counts = attack.result()
        seen = ", ".join(f"{what} {count}" for what, count in counts.most_common())
        yield Figure(name, f"good answers to {connections} attackers ({seen})", counts["200"], 1, at_least=True)
        yield from self._innocent.figures(name, most)
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
    """The most memory and shared memory that a service takes meanwhile, looked at twice a second."""
    most, over = [0, 0], threading.Event()

    def look() -> None:
        while not over.wait(0.5):
            with contextlib.suppress(psutil.Error):
                most[:] = max(most[0], victims.memory(server)), max(most[1], victims.shared_memory(server))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield lambda: (most[0], most[1])
    finally:
        over.set()
        watcher.join()
