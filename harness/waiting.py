"""Free ports, and waiting for a condition."""

import contextlib
import math
import os
import random
import socket
import time
from collections import deque
from collections.abc import Callable

TIMEOUT_S = 120
"""Seconds that a condition may take on a machine that is busy, or pauses."""
_given = deque[int](maxlen=1000)
"""Latest ports that `free_ports` returned."""


def free_ports(count: int) -> list[int]:
    """Return unused ports below the range for outgoing connections, because a server may bind
    them much later.

    Until then they seem unused: each process of `pytest -n` has ports of its own.
    """
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ports: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(ports) < count:
            port = random.randrange(10_000 + number, 32_768, processes)
            if port in _given:
                continue
            with contextlib.suppress(OSError):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
                ports.append(port)
                _given.append(port)
    return ports


def seconds_until(condition: Callable[[], object], seconds: float, every: float = 0.05) -> float:
    """Return the seconds until a condition holds, or infinity if it does not in time."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            return math.inf
        time.sleep(every)
    return time.monotonic() - began


def wait_until(
    condition: Callable[[], object], seconds: float = TIMEOUT_S, what: str = "", every: float = 0.02
) -> None:
    """Wait until a condition holds; fail the test if it does not in time, with `what` as the
    message.
    """
    assert math.isfinite(seconds_until(condition, seconds, every)), what
