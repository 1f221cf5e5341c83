"""Redis that accepts commands and answers a byte now and then."""

import contextlib
import socketserver
import threading
import time
from collections.abc import Iterator

from harness.load import crowd
from tests.chaos.callers import mixed
from tests.chaos.control_client import ControlClient
from tests.chaos.figures import Figure, Start, unexpected_outcomes
from tests.chaos.processes import readiness_over

BYTE_EVERY_S = 0.8
"""Less than the service's longest time without a byte."""
MAX_S = 5.0


class _Connection(socketserver.BaseRequestHandler):
    """Answers whatever comes with a line that does not end."""

    connections = 0
    """Connections so far, of all services in this process."""

    def handle(self) -> None:
        _Connection.connections += 1
        with contextlib.suppress(ConnectionError):  # the service gives up
            while True:
                self.request.sendall(b"+")
                time.sleep(BYTE_EVERY_S)


def slow_redis(start: Start, seconds: float = 25) -> Iterator[Figure]:
    """Send new images to a service whose Redis drips."""
    name = f"Redis that sends a byte per {BYTE_EVERY_S:g} s"
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Connection) as redis:
        redis.daemon_threads = True
        threading.Thread(target=redis.serve_forever, daemon=True).start()
        url = f"redis://127.0.0.1:{redis.server_address[1]}"
        with start(MOBILE_SAM_REDIS_URL=url) as server:
            control = ControlClient(server)
            new = crowd(server.port, mixed(images=1, new=1.0, prepared=50), 4, pause=0.5)
            with control.clicking(), new as outcomes:
                ready = readiness_over(server, seconds)
            yield Figure(name, "connections to Redis", _Connection.connections, 1, at_least=True)
            yield from control.figures(name)
            yield unexpected_outcomes(f"{name}, new images", outcomes, {"ok"})
            slowest = max(outcome.seconds for outcome in outcomes.all)
            yield Figure(name, f"slowest of {len(outcomes.all)} new images", slowest, MAX_S, "s")
            yield Figure(name, f"probes of {len(ready)} without a 200", ready.count(False), 0)
        redis.shutdown()
