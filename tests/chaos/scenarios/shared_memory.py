"""Full shared memory: the service gets its own, small one in a mount namespace."""

import time
from collections.abc import Iterator

from harness import seconds_until
from harness.load import Replies, crowd
from tests.chaos.callers import click
from tests.chaos.control_client import ControlClient
from tests.chaos.figures import Figure, Start, died, not_run, unexpected_outcomes
from tests.chaos.valid_requests import image_file
from tests.small_disk import full_shared_memory as full
from tests.small_disk import own_shared_memory

SIZE_MB = 1024
MAX_DETECTION_S = 10.0
"""Time after which readiness must be right: the watchdog's own inferences notice the fault."""
SHORTAGE_REASONS = {"ok", "inference-unavailable", "overloaded"}


def full_shared_memory(start: Start, seconds: float = 25) -> Iterator[Figure]:
    """Fill shared memory except for a megabyte."""
    name = "full shared memory"
    if (through := own_shared_memory(SIZE_MB)) is None:
        yield not_run(name, "mounting is not allowed")
        return
    with start(through=through) as server:
        control = ControlClient(server)
        workers = server.workers()

        large = click(image_file(1200, 1200, "PNG", "noise"))
        untrue, asked = 0, 0
        with (
            control.clicking() as small,
            crowd(server.port, lambda: large, 1, pause=0.5) as outcomes,
        ):
            with full(server):
                until = time.monotonic() + seconds
                time.sleep(MAX_DETECTION_S)
                while time.monotonic() < until:
                    before = len(outcomes.all)
                    ready = server.readiness() == 200
                    seconds_until(lambda before=before: len(outcomes.all) >= before + 2, 60)  # type: ignore[misc]
                    refused = not any(outcome.ok for outcome in outcomes.all[before:])
                    asked, untrue = asked + 1, untrue + (ready and refused)
            freed = time.monotonic()
            well = seconds_until(lambda: server.readiness() == 200, 60)
            time.sleep(5)
        yield unexpected_outcomes(f"{name}, clicks", small, SHORTAGE_REASONS)
        yield unexpected_outcomes(f"{name}, large images", outcomes, SHORTAGE_REASONS)
        yield Figure(
            name, f"checks of {asked} that were ready although images were refused", untrue, 0
        )
        yield Figure(name, "ready again after", well, 30, "s")
        later = Replies([*small.after(freed + well).all, *outcomes.after(freed + well).all])
        yield unexpected_outcomes(f"{name}, afterwards", later, {"ok"})
        yield Figure(name, "answers afterwards", len(later.answered()), 2, at_least=True)
        yield died(name, server, workers)
