"""Bodies and heads that take long to parse, while somebody asks whether the worker lives."""

import time
from collections.abc import Iterator
from functools import partial

from harness.load import Request, crowd
from tests.chaos import hostile
from tests.chaos.control_client import ADDRESS
from tests.chaos.figures import Figure, Start, died, listed, ready_afterwards
from tests.chaos.hostile_bodies import hostile_bodies
from tests.chaos.scenarios.costly import ALL_TOOLS

MAX_PROBE_S = 0.2
PAUSE_S = 0.02


def bodies_loop(start: Start, seconds: float = 3) -> Iterator[Figure]:
    """Send each of the hostile bodies over two connections, and ask `/livez` meanwhile."""
    with start(**ALL_TOOLS) as server:
        workers = server.workers()
        for name, request in hostile_bodies():
            probing = crowd(
                server.port,
                partial(Request, "/livez"),
                callers=1,
                pause=PAUSE_S,
                keep=False,
                address=ADDRESS,
            )
            with (
                probing as probes,
                hostile.attacking(
                    hostile.flood_requests, server.port, 2, seconds, [request]
                ) as attack,
            ):
                began = time.monotonic()
                counts = attack.result()
            answers = probes.after(began).all
            slowest = max(
                (probe.seconds if probe.ok else float("inf") for probe in answers),
                default=float("inf"),
            )
            label = f"attempts that were answered ({listed(counts)})"
            yield Figure(name, label, hostile.answered(counts), 1, at_least=True)
            yield Figure(
                name, f"slowest of {len(answers)} answers of /livez", slowest, MAX_PROBE_S, "s"
            )
        yield died("bodies-loop", server, workers)
        yield ready_afterwards("bodies-loop", server)
