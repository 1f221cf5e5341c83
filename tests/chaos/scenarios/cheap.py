"""Answers that need neither a key, a rate nor a slot: their processor time, and clicks beside
floods of them.
"""

import base64
import time
from collections.abc import Iterator, Mapping
from functools import partial

import psutil

from benchmarks.stats import percentile
from harness import Server
from harness.load import Request, closed_loop, crowd
from harness.server import cpu_seconds
from tests.chaos.callers import photo
from tests.chaos.control_client import ControlClient, waits
from tests.chaos.figures import Figure, Start

NAME = "cheap answers"
CHEAPEST = "/livez"
EXPECTED_STATUS = {"/embed/{job}, unknown": 404, "/decoder.onnx, unchanged": 304}
"""Statuses of answers; the others have 200."""
MAX_ANSWER_MS = 2.0
MAX_RATIO = 1.5
"""Goal for the p95 of clicks beside a flood, as a multiple of that beside one of `CHEAPEST`."""


def cheap_answers(
    start: Start, answers: int = 400, seconds: float = 10, connections: int = 64
) -> Iterator[Figure]:
    """Measure the processor time of each cheap answer in all processes, then click beside floods
    of each.
    """
    with start() as server:
        asked = cheap_requests(server)
        idle_share = _idle_share(server.family())
        for path, request in asked.items():
            taken_ms = 1000 * _seconds_per_answer(server, path, request, answers, idle_share)
            yield Figure(
                NAME, f"processor time of an answer: {path}", taken_ms, MAX_ANSWER_MS, "ms"
            )
        control = ControlClient(server)
        goal_ms = float("inf")
        for path, request in asked.items():
            flood = partial(crowd, server.port, partial(lambda same: same, request), connections)
            with flood() as replies:
                time.sleep(1.0)
                with control.clicking() as clicks:
                    time.sleep(seconds)
            p95_ms = 1000 * percentile(waits(clicks) or [float("inf")], 95)
            expected_status = EXPECTED_STATUS.get(path, 200)
            answers_of_path = sum(reply.status == expected_status for reply in replies.all)
            yield Figure(
                NAME, f"answers in the flood: {path}", answers_of_path, connections, at_least=True
            )
            rate = len(replies.all) / (seconds + 1)
            label = f"p95 of clicks beside {connections} connections: {path} ({rate:.0f}/s)"
            yield Figure(NAME, label, p95_ms, goal_ms, "ms")
            if path == CHEAPEST:
                goal_ms = MAX_RATIO * p95_ms
        yield from control.figures(NAME)


def cheap_requests(server: Server) -> Mapping[str, Request]:
    """Return the requests by name, `CHEAPEST` first; a job makes the queue's database."""
    images = [base64.b64encode(photo(seed)).decode() for seed in (1, 2)]
    server.post("/embed", images=images).raise_for_status()
    return {
        CHEAPEST: Request(CHEAPEST),
        "/readyz": Request("/readyz"),
        "/info": Request("/info"),
        "/metrics": Request("/metrics"),
        "/embed/{job}, unknown": Request("/embed/unknown-job-id-000000"),
        "/decoder.onnx, unchanged": Request("/decoder.onnx", headers={"If-None-Match": "*"}),
        "/ui": Request("/ui"),
        "/ui/app.js": Request("/ui/app.js"),
    }


def _seconds_per_answer(
    server: Server, path: str, request: Request, answers: int, idle_share: float
) -> float:
    """Return the processor time of one of so many answers, without what the service takes while
    it is idle.
    """
    port, processes = server.port, server.family()
    closed_loop(port, [request] * 10)
    began, before = time.monotonic(), cpu_seconds(processes)
    replies = closed_loop(port, [request] * answers).all
    taken, elapsed = cpu_seconds(processes) - before, time.monotonic() - began
    statuses = {reply.status for reply in replies}
    if statuses != {EXPECTED_STATUS.get(path, 200)}:
        raise RuntimeError(f"{path}: answers with status {statuses}")
    return max(0.0, taken - idle_share * elapsed) / answers


def _idle_share(processes: list[psutil.Process], seconds: float = 8.0) -> float:
    """Return the processors that the service takes while it is idle."""
    time.sleep(seconds / 4)  # for the images of the job
    before = cpu_seconds(processes)
    time.sleep(seconds)
    return (cpu_seconds(processes) - before) / seconds
