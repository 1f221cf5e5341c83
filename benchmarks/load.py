"""Load client for all servers, with keep-alive connections and prepared bodies; runs in a separate process.

Closed loop: each connection sends its next request once it has its answer. Open loop: each request is due at a fixed
time, whatever the server does, and its latency counts from then.

A run stops with an error at the first answer that is not a success.
"""

import http.client
import multiprocessing
import random
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from email.message import Message

OPEN_LOOP_CONNECTIONS = 64
TIMEOUT_S = 120
MAX_IDLE_S = 2
"""Uvicorn closes connections that are idle for 5 s."""


@dataclass(frozen=True)
class Request:
    """Request that is ready to send."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Run:
    """Requests to send to a server on this machine."""

    port: int
    requests: Sequence[Request]
    concurrency: int = 1
    due: Sequence[float] | None = None
    """Open loop only: send time of each request, in seconds after the start."""


@dataclass
class Outcome:
    """Latencies and totals of a run."""

    latencies: list[float] = field(default_factory=list)
    """Seconds, in the order of the answers."""
    seconds: float = 0.0
    """Time from the first request to the last answer."""
    answer_bytes: int = 0
    """Total size of all bodies."""
    client_cpu_seconds: float = 0.0
    cpu_seconds: float = 0.0
    """CPU time of what was measured: the server's processes, or this process for the raw model."""


class LoadError(RuntimeError):
    """Error answer, or none, from a server under load."""


class Connection:
    """Keep-alive connection, reopened after a pause before the server closes it."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        self._used = 0.0

    def ask(self, request: Request, expected: bytes = b"") -> tuple[bytes, Message]:
        """Send a request; return body and headers of the answer.

        Raises:
            LoadError: there is no answer, its status is not 200, or its body lacks the expected bytes.
        """
        if time.monotonic() - self._used > MAX_IDLE_S:
            self._http.close()
        try:
            self._http.request("POST", request.path, request.body, dict(request.headers))
            response = self._http.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise LoadError(f"{request.path}: {type(error).__name__}: {error}") from error
        self._used = time.monotonic()
        if response.status != 200:
            raise LoadError(f"{request.path}: {response.status}: {body[:500]!r}")
        if expected not in body:
            raise LoadError(f"{request.path}: expected {expected!r} in the answer, got {body[:500]!r}")
        return body, response.headers

    def close(self) -> None:
        """Close the connection."""
        self._http.close()


def poisson(rate: float, count: int, seed: int) -> list[float]:
    """Return Poisson arrival times at a mean `rate` per second: independent callers."""
    generator = random.Random(seed)
    now, times = 0.0, []
    for _ in range(count):
        now += generator.expovariate(rate)
        times.append(now)
    return times


def perform(run: Run) -> Outcome:
    """Send the requests of a run from threads of this process.

    Raises:
        LoadError: a request failed, see `Connection.ask`; no further one is sent.
    """
    outcome, lock, failed = Outcome(), threading.Lock(), threading.Event()
    turn = iter(range(len(run.requests)))
    count = min(len(run.requests), run.concurrency if run.due is None else OPEN_LOOP_CONNECTIONS)

    def work() -> None:
        with closing(Connection(run.port)) as connection:
            while not failed.is_set():
                with lock:
                    index = next(turn, None)
                if index is None:
                    return
                start = time.perf_counter()
                if run.due is not None:
                    start = begun + run.due[index]
                    time.sleep(max(0.0, start - time.perf_counter()))
                try:
                    body, _ = connection.ask(run.requests[index])
                except LoadError:
                    failed.set()
                    raise
                taken = time.perf_counter() - start
                with lock:
                    outcome.latencies.append(taken)
                    outcome.answer_bytes += len(body)

    cpu, begun = time.process_time(), time.perf_counter()
    with ThreadPoolExecutor(count) as pool:
        workers = [pool.submit(work) for _ in range(count)]
    outcome.seconds, outcome.client_cpu_seconds = time.perf_counter() - begun, time.process_time() - cpu
    for worker in workers:
        worker.result()
    return outcome


def load_client() -> ProcessPoolExecutor:
    """Return a process that performs runs, one at a time: `client.submit(perform, run)`."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
