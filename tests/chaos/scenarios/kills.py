"""Processes that are killed, suspended or stopped under load."""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence

import psutil

from harness import Server, seconds_until
from harness.load import Replies, crowd
from harness.server import READY_TIMEOUT_S
from tests.chaos.callers import click, mixed, photo
from tests.chaos.figures import Figure, Start, recovery, unexpected_outcomes, wait_for_answers
from tests.chaos.processes import left_over

OUTAGE_REASONS = {"ok", "inference-unavailable", "inference-timeout", "closed"}
"""Allowed outcomes while Triton is down."""
MODELS = (
    "mobile_sam",
    "mobile_sam_cached",
    "mobile_sam_everything",
    "mobile_sam_encoder",
    "mobile_sam_decoder",
)


def _outage(
    start: Start,
    name: str,
    *faults: Callable[[Server], None],
    callers: int = 4,
    healed_s: float = 60,
) -> Iterator[Figure]:
    """Inject faults under load, one after the other, and wait after each until the service is ready
    again.

    Args:
        start: function that runs the service.
        name: name of the scenario.
        faults: functions that injure the service.
        callers: callers of the load.
        healed_s: goal for the time until the service is ready again.
    """
    # In a container, BentoML restarts nothing.
    with (
        start(BENTOML_CONTAINERIZED="true") as server,
        crowd(server.port, mixed(), callers) as outcomes,
    ):
        for fault in faults:
            wait_for_answers(outcomes)
            fault(server)
            probes: list[float] = []

            def ready(probes: list[float] = probes) -> bool:
                began = time.monotonic()
                status = server.readiness()
                probes.append(time.monotonic() - began)
                return status == 200

            gone = seconds_until(lambda ready=ready: not ready(), 60, 0.01)  # type: ignore[misc]
            yield Figure(name, "not ready after", gone, 10, "s")
            yield Figure(
                name, "healed after", gone + seconds_until(ready, READY_TIMEOUT_S), healed_s, "s"
            )
            yield Figure(name, "slowest answer of /readyz", max(probes), 2, "s")
            moment = time.monotonic()
            wait_for_answers(outcomes)
            yield recovery(name, outcomes.after(moment))
    yield unexpected_outcomes(name, outcomes, OUTAGE_REASONS)


def killed_triton(start: Start) -> Iterator[Figure]:
    """Kill tritonserver under load."""
    return _outage(
        start, "kill -9 tritonserver", lambda server: server.triton().kill(), healed_s=20
    )


def killed_stubs(start: Start, models: Sequence[str] = MODELS) -> Iterator[Figure]:
    """Kill one process of each Python model."""
    kills = [lambda server, model=model: server.stubs(model)[0].kill() for model in models]
    return _outage(start, "kill -9 a process of a model", *kills, callers=2)


def stopped(
    start: Start, who: Callable[[Server], psutil.Process] = Server.triton
) -> Iterator[Figure]:
    """Suspend tritonserver, or another process, under load."""
    name = f"SIGSTOP {'tritonserver' if who is Server.triton else 'a process of a model'}"
    return _outage(start, name, lambda server: who(server).suspend())


def killed_worker(start: Start) -> Iterator[Figure]:
    """Kill an API worker under load, in a container, where BentoML does not start another."""
    name = "kill -9 an API worker"
    with start(BENTOML_CONTAINERIZED="true") as server, crowd(server.port, mixed(), 4) as outcomes:
        count = len(server.workers())
        wait_for_answers(outcomes)
        server.workers()[0].kill()
        moment = time.monotonic()
        back = seconds_until(lambda: len(server.workers()) == count, READY_TIMEOUT_S)
        time.sleep(3)
    lost = outcomes.reasons()["lost"] + outcomes.reasons()["closed"]
    others = [
        outcome
        for outcome in outcomes.after(moment + 0.2).all
        if outcome.reason not in {"ok", "closed"}
    ]
    yield Figure(name, "requests lost, of callers it was answering", lost, 4)
    yield Figure(name, "requests that failed later", len(others), 0)
    yield Figure(name, "another one after", back, 60, "s")


def killed_service(start: Start) -> Iterator[Figure]:
    """Kill the service's main process and start the service again on the same port."""
    name = "kill -9 the service"
    with start() as server:
        family = server.family()
        with crowd(server.port, mixed(), 2) as outcomes:
            wait_for_answers(outcomes)
            server.process.kill()
            server.process.wait()
        began = time.monotonic()
        with start(port=server.port) as again:
            yield Figure(
                name, "ready again on the same port after", time.monotonic() - began, 60, "s"
            )
            yield Figure(name, "processes left", len(left_over(family, 45)), 0)
            yield Figure(name, "regions of shared memory left", len(server.regions()), 0)
            yield Figure(
                name, "status of a click then", again.send(click(photo(1))).status_code, 200
            )


def stopped_under_load(start: Start, times: int = 20) -> Iterator[Figure]:
    """Send SIGTERM twice under load, repeatedly."""
    name = f"SIGTERM under load, {times} times"
    slowest, left, all_outcomes, codes = 0.0, 0, Replies(), set()
    for number in range(times):
        with start() as server:
            family = server.family()
            assert server.triton()
            assert server.stubs()
            assert server.regions()
            # Alternate between keep-alive and new connections.
            with crowd(server.port, mixed(seed=number), 6, keep=number % 2 == 0) as outcomes:
                wait_for_answers(outcomes)
                began = time.monotonic()
                server.process.send_signal(signal.SIGTERM)
                time.sleep(0.2)
                server.process.send_signal(signal.SIGTERM)
                try:
                    codes.add(server.process.wait(60))
                except subprocess.TimeoutExpired:
                    codes.add(-1)
                slowest = max(slowest, time.monotonic() - began)
            # The port closes while callers connect: "lost" is a fault of requests from before the
            # signal only.
            all_outcomes.all += [
                one for one in outcomes.all if one.began < began or one.reason != "lost"
            ]
            left += len(left_over(family, 60)) + len(server.regions())
    yield Figure(name, "slowest exit", slowest, 40, "s")
    yield unexpected_outcomes(name, all_outcomes, {"ok", "stopping", "refused"})
    yield Figure(name, "processes and regions left", left, 0)
    yield Figure(name, "exit status other than 0", len(codes - {0}), 0)
