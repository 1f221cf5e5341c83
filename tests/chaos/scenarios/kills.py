"""Processes that are killed, suspended or stopped under load."""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence

import psutil
import requests

from tests.chaos import victims
from tests.chaos.callers import JSON, Outcomes, click, crowd, mixed, photo
from tests.chaos.figures import Figure, Start, recovery, unexpected_outcomes, wait_for_answers
from tests.e2e.server import Server

OUTAGE_REASONS = {"ok", "inference-unavailable", "inference-timeout", "closed"}
"""Allowed outcomes while Triton is down."""
MODELS = ("mobile_sam", "mobile_sam_cached", "mobile_sam_everything", "mobile_sam_encoder", "mobile_sam_decoder")


def _outage(server: Server) -> tuple[float, float]:
    """Return the seconds until the service is not ready, and from then until it is ready again."""
    gone = victims.until(lambda: victims.readiness(server) != 200, 30, 0.01)
    return gone, victims.until(lambda: victims.readiness(server) == 200, 90)


def killed_triton(start: Start) -> Iterator[Figure]:
    """Kill tritonserver under load."""
    name = "kill -9 tritonserver"
    began = time.monotonic()
    with start() as server:
        load = time.monotonic() - began
        with crowd(server.port, mixed(), 4) as outcomes:
            wait_for_answers(outcomes)
            victims.triton(server).kill()
            gone, back = _outage(server)
            moment = time.monotonic()
            wait_for_answers(outcomes)
        yield Figure(name, "not ready after", gone, 10, "s")
        yield Figure(name, f"ready again after (a start takes {load:.1f} s)", back, 15 + load, "s")
        yield unexpected_outcomes(name, outcomes, OUTAGE_REASONS)
        yield recovery(name, outcomes.after(moment))


def killed_stubs(start: Start, models: Sequence[str] = MODELS) -> Iterator[Figure]:
    """Kill one process of each Python model."""
    with start() as server, crowd(server.port, mixed(), 2) as outcomes:
        for model in models:
            name = f"kill -9 a process of {model}"
            victims.stubs(server, model)[0].kill()
            gone, back = _outage(server)
            yield Figure(name, "not ready after", gone, 10, "s")
            yield Figure(name, "healed after", back, 60, "s")
    yield unexpected_outcomes("kill -9 a process of a model", outcomes, OUTAGE_REASONS)


def stopped(start: Start, who: Callable[[Server], psutil.Process] = victims.triton) -> Iterator[Figure]:
    """Suspend tritonserver, or another process, under load."""
    name = f"SIGSTOP {'tritonserver' if who is victims.triton else 'a process of a model'}"
    # In a container, BentoML restarts nothing.
    with start(BENTOML_CONTAINERIZED="true") as server, crowd(server.port, mixed(), 4) as outcomes:
        wait_for_answers(outcomes)
        who(server).suspend()
        answers = []

        def ready() -> bool:
            began = time.monotonic()
            status = victims.readiness(server)
            answers.append(time.monotonic() - began)
            return status == 200

        gone = victims.until(lambda: not ready(), 30)
        yield Figure(name, "not ready after", gone, 10, "s")
        yield Figure(name, "healed after", gone + victims.until(ready, 90), 60, "s")
        yield Figure(name, "slowest answer of /readyz", max(answers), 2, "s")
        moment = time.monotonic()
        wait_for_answers(outcomes)
    yield unexpected_outcomes(name, outcomes, OUTAGE_REASONS)
    yield recovery(name, outcomes.after(moment))


def killed_worker(start: Start) -> Iterator[Figure]:
    """Kill an API worker under load, in a container, where BentoML does not start another."""
    name = "kill -9 an API worker"
    with start(BENTOML_CONTAINERIZED="true") as server, crowd(server.port, mixed(), 4) as outcomes:
        count = len(victims.workers(server))
        wait_for_answers(outcomes)
        victims.workers(server)[0].kill()
        moment = time.monotonic()
        back = victims.until(lambda: len(victims.workers(server)) == count, 40)
        time.sleep(3)
    lost = outcomes.reasons()["lost"] + outcomes.reasons()["closed"]
    others = [outcome for outcome in outcomes.after(moment + 0.2).all if outcome.reason not in {"ok", "closed"}]
    yield Figure(name, "requests lost, of callers it was answering", lost, 4)
    yield Figure(name, "requests that failed later", len(others), 0)
    yield Figure(name, "another one after", back, 60, "s")


def killed_service(start: Start) -> Iterator[Figure]:
    """Kill the service's main process and start the service again on the same port."""
    name = "kill -9 the service"
    with start() as server:
        family = victims.family(server)
        with crowd(server.port, mixed(), 2) as outcomes:
            wait_for_answers(outcomes)
            server.process.kill()
            server.process.wait()
        began = time.monotonic()
        with start(port=server.port) as again:
            yield Figure(name, "ready again on the same port after", time.monotonic() - began, 60, "s")
            yield Figure(name, "processes left", len(victims.left_over(family, 45)), 0)
            yield Figure(name, "regions of shared memory left", len(victims.regions(server)), 0)
            path, body = click(photo(1))
            answer = requests.post(again.url + path, body, headers=JSON, timeout=60)
            yield Figure(name, "status of a click then", answer.status_code, 200)


def told_to_stop(start: Start, times: int = 20) -> Iterator[Figure]:
    """Send SIGTERM twice under load, repeatedly."""
    name = f"SIGTERM under load, {times} times"
    slowest, left, all_outcomes, codes = 0.0, 0, Outcomes(), set()
    for number in range(times):
        with start() as server:
            family = victims.family(server)
            assert victims.triton(server)
            assert victims.stubs(server)
            assert victims.regions(server)
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
            all_outcomes.all += outcomes.all
            left += len(victims.left_over(family, 60)) + len(victims.regions(server))
    yield Figure(name, "slowest exit", slowest, 40, "s")
    yield unexpected_outcomes(name, all_outcomes, {"ok", "stopping", "refused"})
    yield Figure(name, "processes and regions left", left, 0)
    yield Figure(name, "exit status other than 0", len(codes - {0}), 0)
