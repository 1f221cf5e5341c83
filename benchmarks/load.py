"""Load client for all servers, in a process of its own, with keep-alive connections and prepared bodies.

Closed loop: each connection sends its next request once it has its answer. Open loop: each request is due at a fixed
time, whatever the server does, and its latency counts from then.

A run stops with an error at the first answer that is not a success.
"""

from __future__ import annotations

import http.client
import multiprocessing
import random
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.message import Message
from multiprocessing.connection import Connection as Pipe
from types import TracebackType

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
    refusal: bytes | None = None
    """Text in answers that report an error with status 200."""


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


class LoadError(RuntimeError):
    """Error answer, or none, from a server under load."""


class Connection:
    """Keep-alive connection, reopened after a pause before the server closes it."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        self._used = 0.0

    def ask(self, request: Request, refusal: bytes | None = None) -> tuple[bytes, Message]:
        """Send a request; return body and headers of the answer.

        Raises:
            LoadError: the answer is not a 200, contains `refusal`, or does not arrive.
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
        if response.status != 200 or (refusal and refusal in body):
            raise LoadError(f"{request.path}: {response.status}: {body[:500]!r}")
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


def even(rate: float, count: int) -> list[float]:
    """Return evenly spaced arrival times, `rate` per second."""
    return [number / rate for number in range(count)]


def perform(run: Run) -> Outcome:
    """Send the requests of a run from threads of this process.

    Raises:
        LoadError: a request failed, see `Connection.ask`; no further one is sent.
    """
    outcome, errors = Outcome(), list[LoadError]()
    lock, turn = threading.Lock(), iter(range(len(run.requests)))
    count = min(len(run.requests), run.concurrency if run.due is None else OPEN_LOOP_CONNECTIONS)
    gate = threading.Barrier(count + 1)
    begun = 0.0

    def work() -> None:
        connection = Connection(run.port)
        gate.wait()
        try:
            while not errors:
                with lock:
                    index = next(turn, None)
                if index is None:
                    return
                start = time.perf_counter()
                if run.due is not None:
                    start = begun + run.due[index]
                    time.sleep(max(0.0, start - time.perf_counter()))
                body, _ = connection.ask(run.requests[index], run.refusal)
                taken = time.perf_counter() - start
                with lock:
                    outcome.latencies.append(taken)
                    outcome.answer_bytes += len(body)
        except LoadError as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    cpu, begun = time.process_time(), time.perf_counter()
    gate.wait()
    for thread in threads:
        thread.join()
    outcome.seconds, outcome.client_cpu_seconds = time.perf_counter() - begun, time.process_time() - cpu
    if errors:
        raise errors[0]
    return outcome


class LoadClient:
    """Process that performs runs, one at a time."""

    def __enter__(self) -> LoadClient:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve_runs, args=(theirs,), daemon=True)
        self._process.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.is_alive():
            self._pipe.send(None)
        self._process.join(TIMEOUT_S)

    def begin(self, run: Run) -> None:
        """Start a run."""
        self._pipe.send(run)

    def busy(self) -> bool:
        """Return whether the current run is still in progress."""
        return not self._pipe.poll()

    def end(self) -> Outcome:
        """Wait for the current run to finish.

        Raises:
            LoadError: the run failed.
        """
        answer = self._pipe.recv()
        if isinstance(answer, str):
            raise LoadError(answer)
        assert isinstance(answer, Outcome)
        return answer

    def run(self, run: Run) -> Outcome:
        """Perform a run.

        Raises:
            LoadError: the run failed.
        """
        self.begin(run)
        return self.end()


def _serve_runs(pipe: Pipe) -> None:
    while (run := pipe.recv()) is not None:
        try:
            pipe.send(perform(run))
        except LoadError as error:
            pipe.send(str(error))
