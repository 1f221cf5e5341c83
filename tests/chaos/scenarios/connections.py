"""Endless heads and trailers, and half-open connections."""

import time
from collections.abc import Iterator

from harness import Server
from harness.server import resident_bytes
from tests.chaos import hostile
from tests.chaos.control_client import ControlClient
from tests.chaos.figures import MEGABYTE, Figure, Start, listed
from tests.chaos.processes import sampling


def heads(start: Start, seconds: float = 60, connections: int = 50) -> Iterator[Figure]:
    """Send endless heads, trailers and chunk extensions."""
    name = f"endless heads and trailers over {connections} connections for {seconds:g} s"
    with start() as server:
        control = ControlClient(server, alone_s=seconds / 10)
        workers = server.workers()
        with (
            control.clicking(),
            sampling(lambda: [resident_bytes([worker]) for worker in workers], 0.1) as sizes,
            hostile.attacking(
                hostile.send_endless_heads, server.port, connections, seconds
            ) as attack,
        ):
            counts = attack.result()
        growth = max(max(of_worker) - of_worker[0] for of_worker in zip(*sizes, strict=True))
        # The service resets connections whose caller goes on sending after the refusal.
        connected = counts.total() - counts[ConnectionRefusedError.__name__]
        yield Figure(name, f"attempts ({listed(counts, 6)})", connected, connections, at_least=True)
        yield Figure(name, "growth of a worker's memory", growth / MEGABYTE, 20, "MB")
        yield from control.figures(name, max_slowdown=2)


def half_open(start: Start, connections: int = 2000, seconds: float = 20) -> Iterator[Figure]:
    """Open many connections that send half a head and wait."""
    name = f"{connections} half-open connections"
    with start() as server:
        control = ControlClient(server)
        with (
            control.clicking(),
            sampling(lambda: _readiness_s(server), 0.2) as answers,
            hostile.attacking(hostile.hold_half_open, server.port, connections, seconds) as attack,
        ):
            counts = attack.result()
        connected = counts.total() - counts[ConnectionRefusedError.__name__]
        yield Figure(name, f"attempts ({listed(counts, 6)})", connected, connections, at_least=True)
        late = sum(taken > 1 for taken in answers)
        yield Figure(name, f"probes of {len(answers)} without a 200 within 1 s", late, 0)
        yield Figure(name, "slowest answer of /readyz", max(answers), 1, "s")
        yield from control.figures(name)


def _readiness_s(server: Server) -> float:
    """Return the latency of `/readyz`, infinity for any answer but a 200."""
    began = time.monotonic()
    good = server.readiness() == 200
    return time.monotonic() - began if good else float("inf")
