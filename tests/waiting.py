"""Wait for a condition in a test."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], seconds: float = 60, what: str = "") -> None:
    """Wait until a condition holds; fail the test if it does not in time, with `what` as the message."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
