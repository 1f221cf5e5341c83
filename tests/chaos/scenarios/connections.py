"""Endless heads and trailers, and half-open connections."""

import time
from collections.abc import Iterator, Sequence

from tests.chaos import hostile, victims
from tests.chaos.figures import MEGABYTE, Figure, Start, died, listed, ready_afterwards
from tests.chaos.innocent import InnocentCaller
from tests.e2e.server import Server

FEW_DESCRIPTORS = ("prlimit", "--nofile=256:256", "--")


def heads(start: Start, seconds: float = 60, connections: int = 50) -> Iterator[Figure]:
    """Send endless heads, trailers and chunk extensions."""
    name = f"endless heads and trailers over {connections} connections for {seconds:g} s"
    with start() as server:
        innocent = InnocentCaller(server, alone_s=seconds / 10)
        workers = victims.workers(server)
        with (
            innocent.clicking(),
            victims.sampling(lambda: [victims.resident([worker]) for worker in workers], 0.1) as sizes,
            hostile.attacking(hostile.send_endless_heads, server.port, connections, seconds) as attack,
        ):
            seen = listed(attack.result(), 6)
        growth = max(max(of_worker) - of_worker[0] for of_worker in zip(*sizes, strict=True))
        yield Figure(name, f"growth of a worker's memory ({seen})", growth / MEGABYTE, 20, "MB")
        yield died(name, server, workers)
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
            victims.sampling(lambda: _readiness_s(server), 0.2) as answers,
            hostile.attacking(hostile.hold_half_open, server.port, connections, seconds) as attack,
        ):
            attack.result()
        late = sum(taken > 1 for taken in answers)
        yield Figure(name, f"probes of {len(answers)} without a 200 within 1 s", late, 0)
        yield Figure(name, "slowest answer of /readyz", max(answers), 1, "s")
        yield from innocent.figures(name)
        yield ready_afterwards(name, server)


def _readiness_s(server: Server) -> float:
    """Return the latency of `/readyz`, infinity for any answer but a 200."""
    began = time.monotonic()
    good = victims.readiness(server) == 200
    return time.monotonic() - began if good else float("inf")
