"""Fuzzer that sends nearly valid requests to a running service and checks every answer.

`python -m tests.fuzz.hammer http://127.0.0.1:3000 --count 20000 --seed 1` sends the corpus, every body and every image
in a valid body, then `--count` requests of a seed, in batches. The exit status is 1 if an answer breaks the contract;
each violation is printed with the options that send its batch again.
"""

import argparse
import base64
import contextlib
import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.fuzz.corpus import BODIES, CORPUS, IMAGES
from tests.fuzz.hostile_requests import BATCH, FuzzRequest, post, requests_of_batch
from tests.fuzz.verdict import FuzzAnswer, faults

CONNECTIONS = 8
TIMEOUT_S, FRAMED_TIMEOUT_S = 60, 3
FORMATS = ("json", "npy", "png", "rle", "polygon")


@dataclass(frozen=True)
class Shot:
    """Request with a name, and the expected status if known."""

    name: str
    request: FuzzRequest
    status: int | None = None


@dataclass
class Record:
    """Answers and violations so far."""

    answers: Counter[tuple[int, str]] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    slowest: list[tuple[float, str]] = field(default_factory=list)
    hung_up: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, shot: Shot, answer: FuzzAnswer, seconds: float) -> None:
        """Check and record an answer."""
        found = faults(shot.request, answer)
        if shot.status not in {None, answer.status}:
            found.append(f"{answer.status} instead of {shot.status}: {answer.body[:200]!r}")
        with self.lock:
            self.answers[answer.status, answer.kind] += 1
            self.violations += [f"{shot.name}: {fault}" for fault in found]
            self.slowest = sorted([*self.slowest, (seconds, shot.name)], reverse=True)[:5]

    def fail(self, shot: Shot, error: Exception) -> None:
        """Record a missing answer, which is no violation for requests with unusual framing."""
        with self.lock:
            if shot.request.framed:
                self.hung_up += 1
            else:
                self.violations.append(f"{shot.name}: no answer, {type(error).__name__}: {error}")


def corpus() -> Iterator[Shot]:
    """Yield every body for two paths, and every image for `/embed` and `/mobile_sam`."""
    for name, expected in BODIES.items():
        data = (CORPUS / name).read_bytes()
        yield Shot(f"corpus/{name} to /mobile_sam", post("/mobile_sam", data), expected.status)
        yield Shot(f"corpus/{name} to /embed", post("/embed", data))
    for number, (name, outcome) in enumerate(IMAGES.items()):
        fields = {"input_image": base64.b64encode((CORPUS / name).read_bytes()).decode()}
        click = {"pos_coords": [[0, 0]], "mask_format": FORMATS[number % len(FORMATS)]}
        style = {"segmented_image": ("overlay", "cutout")[number % 2]}
        status = outcome if isinstance(outcome, int) else 200
        for path, more in (("/embed", {}), ("/mobile_sam", click | style)):
            yield Shot(f"corpus/{name} to {path}", post(path, json.dumps(fields | more).encode()), status)


def batch_of(seed: int, batch: int, size: int = BATCH) -> list[Shot]:
    """Return the requests of a batch."""
    return [Shot(f"--seed {seed} --batch {batch}", request) for request in requests_of_batch(seed, batch, size)]


def send(connection: http.client.HTTPConnection, request: FuzzRequest) -> FuzzAnswer:
    """Send a request over a connection, possibly reused; return the answer."""
    names = {name.lower() for name, _ in request.headers}
    connection.putrequest(request.method, request.path, skip_host="host" in names, skip_accept_encoding=True)
    for name, value in request.headers:
        connection.putheader(name, value)
    if not names & {"content-length", "transfer-encoding"} and (request.body or request.method != "GET"):
        connection.putheader("Content-Length", str(len(request.body)))
    connection.endheaders()
    # A server may answer and hang up before it has read the whole body.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.send(request.body)
    response = connection.getresponse()
    body = response.read()
    return FuzzAnswer(response.status, (response.getheader("content-type") or "").split(";")[0], body)


class Gun(threading.local):
    """Sender of requests with a connection per thread, reopened whenever the server closes it."""

    def __init__(self, url: str, record: Record) -> None:
        host = urlsplit(url)
        assert host.hostname
        self._host, self._port, self._record = host.hostname, host.port, record
        self._connection = self._connect(TIMEOUT_S)

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)

    def shoot(self, shot: Shot) -> None:
        """Send a request and record its answer; one with unusual framing gets a connection of its own."""
        if shot.request.framed:
            with contextlib.closing(self._connect(FRAMED_TIMEOUT_S)) as own:
                self._ask(own, shot, last_try=True)
        # The server may close an idle connection, but not a new one.
        elif not self._ask(self._connection, shot, last_try=self._connection.sock is None):
            self._ask(self._connection, shot, last_try=True)

    def _ask(self, connection: http.client.HTTPConnection, shot: Shot, *, last_try: bool) -> bool:
        """Send a request; return whether it is done with, or worth another try."""
        began = time.monotonic()
        try:
            self._record.add(shot, send(connection, shot.request), time.monotonic() - began)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            if last_try:
                self._record.fail(shot, error)
            return last_try
        return True


def report(record: Record, seconds: float) -> int:
    """Print a summary; return the exit status."""
    total = sum(record.answers.values())
    print(f"{total} answers in {seconds:.0f} s, {record.hung_up} connections closed on requests without a clear end")
    for (status, kind), count in sorted(record.answers.items()):
        print(f"{status}  {kind:45} {count:7}")
    print("slowest:", *(f"  {taken:.2f} s  {name}" for taken, name in record.slowest), sep="\n")
    for violation in record.violations[:100]:
        print("VIOLATION", violation)
    print(f"{len(record.violations)} violations")
    return 1 if record.violations or not total else 0


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="URL of the service")
    parser.add_argument("--count", type=int, default=20_000, help="number of requests of the seed")
    parser.add_argument("--seed", type=int, default=1, help="seed of the requests")
    parser.add_argument("--batch", type=int, help="send only this batch of the seed, and no corpus")
    parser.add_argument("--seconds", type=float, default=3600, help="time limit; no batch begins later")
    options = parser.parse_args(arguments)
    began, record = time.monotonic(), Record()
    gun = Gun(options.url, record)
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        if options.batch is not None:
            list(pool.map(gun.shoot, batch_of(options.seed, options.batch)))
        else:
            sending = pool.map(gun.shoot, corpus())
            for start in range(0, options.count, BATCH):
                batch = batch_of(options.seed, start // BATCH, min(BATCH, options.count - start))
                list(sending)  # wait, and raise what was raised
                if time.monotonic() - began > options.seconds:
                    break
                sending = pool.map(gun.shoot, batch)
            list(sending)
    return report(record, time.monotonic() - began)


if __name__ == "__main__":
    raise SystemExit(main())
