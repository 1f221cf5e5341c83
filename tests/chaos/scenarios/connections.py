"""Endless heads and trailers, and half-open connections."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.chaos import hostile, victims
from tests.chaos.figures import MEGABYTE, Figure, Start, port_of
from tests.chaos.innocent import InnocentCaller
from tests.e2e.server import Server

FEW_DESCRIPTORS = ("prlimit", "--nofile=256:256", "--")


def heads(start: Start, seconds: float = 60, connections: int = 50) -> Iterator[Figure]:
    """Send endless heads, trailers and chunk extensions."""
    name = f"endless heads and trailers over {connections} connections for {seconds:g} s"
    with start() as server:
        innocent = InnocentCaller(server)
        workers = victims.workers(server)
        before = [victims.resident([worker]) for worker in workers]
        peaks = list(before)
        with (
            innocent.clicking(),
            hostile.attacking(hostile.send_endless_heads, port_of(server), connections, seconds) as attack,
        ):
            while not attack.done():
                time.sleep(0.1)
                peaks = [max(size, victims.resident([worker])) for size, worker in zip(peaks, workers, strict=True)]
        seen = ", ".join(f"{result} {count}" for result, count in attack.result().most_common(6))
        growth = max(peak - size for peak, size in zip(peaks, before, strict=True))
        yield Figure(name, f"growth of a worker's memory ({seen})", growth / MEGABYTE, 20, "MB")
        yield Figure(name, "workers that died", len(set(workers) - set(victims.workers(server))), 0)
        yield from innocent.figures(name, max_slowdown=2)


def half_open(
    start: Start, connections: int = 2000, seconds: float = 20, through: Sequence[str] = ()
) -> Iterator[Figure]:
    """Open many connections that send half a head and wait."""
    name = f"{connections} half-open connections{', 256 descriptors' if through else ''}"
    with start(through=through) as server:
        innocent = InnocentCaller(server)
        with (
            innocent.clicking(),
            _probing(server) as answers,
            hostile.attacking(hostile.hold_half_open, port_of(server), connections, seconds) as attack,
        ):
            attack.result()
        late = sum(taken > 1 for taken in answers)
        yield Figure(name, f"probes of {len(answers)} without a 200 within 1 s", late, 0)
        yield Figure(name, "slowest answer of /readyz", max(answers), 1, "s")
        yield from innocent.figures(name)
        yield Figure(name, "ready afterwards", abs(victims.readiness(server) - 200), 0)


@contextmanager
def _probing(server: Server) -> Iterator[list[float]]:
    """Probe `/readyz` five times per second; yield the latencies, infinity for any answer but a 200."""
    over, answers = threading.Event(), list[float]()

    def probe() -> None:
        while not over.wait(0.2):
            began = time.monotonic()
            good = victims.readiness(server) == 200
            answers.append(time.monotonic() - began if good else float("inf"))

    prober = threading.Thread(target=probe)
    prober.start()
    try:
        yield answers
    finally:
        over.set()
        prober.join()
