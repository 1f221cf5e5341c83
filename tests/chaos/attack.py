"""Attacks next to a control client, and the figures of the service during and after them."""

import time
from collections.abc import Iterator, Mapping, Sequence

from harness import Server, seconds_until
from harness.load import Request, crowd
from tests.chaos import hostile
from tests.chaos.callers import NONE, mixed
from tests.chaos.control_client import ControlClient
from tests.chaos.figures import MEGABYTE, Figure, listed
from tests.chaos.processes import memory, sampling, shared_memory
from utils.settings import Settings

MEMORY_MB, SHARED_MEMORY_MB = 3072, 512
WARM_UP_S = 5.0
"""Time of normal load before the attacks: memory is compared with the memory of a busy service."""
REST_S = 60.0
"""Time after an attack in which memory must be back."""
SAMPLES_EVERY_S = 2.0
"""Time between two readings of the memory, which takes 0.07 s and stops the processes that are
read."""
MAX_SLOWDOWN, MIN_GOAL_MS = 4.0, 100.0


class AttackedService:
    """A service to attack, and a control client of it."""

    def __init__(
        self, server: Server, alone_s: float = 6.0, headers: Mapping[str, str] = NONE
    ) -> None:
        """Measure the service before the attacks.

        Args:
            server: a running service.
            alone_s: see `ControlClient`.
            headers: further headers of the control client's requests.
        """
        self.server = server
        self._control = ControlClient(server, alone_s, headers)
        with crowd(server.port, mixed(images=10, new=0.5, prepared=20, headers=headers), 8):
            time.sleep(WARM_UP_S)
        self.connections = 2 * Settings.from_environment().max_requests * len(server.workers())
        """Twice as many as the service admits requests."""

    def _sizes(self) -> tuple[float, float]:
        """Return the megabytes of memory and of shared memory."""
        return memory(self.server) / MEGABYTE, shared_memory(self.server) / MEGABYTE

    def figures(
        self,
        name: str,
        requests: Sequence[Request],
        connections: int,
        seconds: float,
        *,
        attempt: hostile.Attempt = hostile.flood_requests,
    ) -> Iterator[Figure]:
        """Attack, and measure the service during and after the attack.

        Args:
            name: name of the attack.
            requests: requests to send.
            connections: number of connections; each sends one of the requests.
            seconds: length of the attack.
            attempt: attempt that each connection repeats.
        """
        server = self.server
        name = f"{name}, {connections} connections, {seconds:g} s"
        before = self._sizes()
        attacking = hostile.attacking(attempt, server.port, connections, seconds, requests)
        with (
            sampling(self._sizes, SAMPLES_EVERY_S) as sizes,
            self._control.clicking(),
            attacking as attack,
        ):
            counts = attack.result()
        taken = sum(
            count
            for result, count in counts.items()
            if "200" <= result < "500" or result == hostile.OPEN
        )
        yield Figure(
            name, f"requests of attackers taken ({listed(counts)})", taken, 1, at_least=True
        )
        yield from self._control.figures(name, MAX_SLOWDOWN, MIN_GOAL_MS)
        kinds, goals = ("memory", "shared memory"), (MEMORY_MB, SHARED_MEMORY_MB)
        for kind, of_kind, goal in zip(kinds, zip(*sizes, strict=True), goals, strict=True):
            yield Figure(name, f"peak of {kind}", max(of_kind), goal, "MB")
        for number, kind in enumerate(kinds):
            most = 1.1 * before[number]

            def is_back(number: int = number, most: float = most) -> bool:
                return self._sizes()[number] <= most

            took = seconds_until(is_back, REST_S, 1.0)
            label = f"{kind} {min(took, REST_S):.0f} s later ({before[number]:.0f} MB before)"
            yield Figure(name, label, self._sizes()[number], most, "MB")
