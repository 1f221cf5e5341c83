"""Fuzzer that sends nearly valid requests to a running service and checks every answer.

`python -m tests.fuzz.hammer http://127.0.0.1:3000 --count 20000 --seed 1 --concurrency 8` sends the corpus, every body
and every image in a valid body, then `--count` requests of a seed. The exit status is 1 if an answer breaks the
contract; each violation is printed with the options that reproduce it.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.client
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.fuzz.make_corpus import BODIES, IMAGES, odd_images
from tests.fuzz.mutate import FuzzRequest, requests
from tests.fuzz.odd_bodies import odd_bodies
from tests.fuzz.verdict import BUSY, FuzzAnswer, faults

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

    def add(self, shot: Shot, answer: FuzzAnswer, seconds: float, *, tolerate_busy: bool) -> None:
        """Check and record an answer."""
        found = faults(shot.request, answer, tolerate_busy=tolerate_busy)
        busy = tolerate_busy and answer.status in BUSY
        if shot.status not in {None, answer.status} and not busy:
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
    """Yield every body for its own path and others, and every image for `/embed` and `/mobile_sam`."""
    for name, odd in odd_bodies().items():
        data = (BODIES / name).read_bytes()
        own = name.split("/")[0]
        for path in ("mobile_sam", "embed", "everything"):
            status = odd.status if path == own else None
            # For another path, a body may be a request that takes long.
            if path in {own, "embed"}:
                yield Shot(f"corpus/bodies/{name} to /{path}", _post(f"/{path}", data), status)
    for number, (name, image) in enumerate(odd_images().items()):
        fields = {"input_image": base64.b64encode((IMAGES / name).read_bytes()).decode()}
        click = {"pos_coords": [[0, 0]], "mask_format": FORMATS[number % len(FORMATS)]}
        style = {"segmented_image": ("overlay", "cutout")[number % 2]}
        for path, more in (("/embed", {}), ("/mobile_sam", click | style)):
            body = json.dumps(fields | more).encode()
            yield Shot(f"corpus/images/{name} to {path}", _post(path, body), image.status or 200)


def seeded(seed: int, count: int, first: int) -> Iterator[Shot]:
    """Yield the requests of a seed."""
    for index, one in enumerate(requests(seed, count, first), first):
        yield Shot(f"--seed {seed} --first {index} --count 1 --no-corpus", one)


def _post(path: str, body: bytes) -> FuzzRequest:
    return FuzzRequest("POST", path, [("Content-Type", "application/json")], body)


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


def shoot(url: str, shots: Iterator[Shot], record: Record, deadline: float, *, tolerate_busy: bool) -> None:
    """Send requests one after the other, over a new connection whenever the server closes the current one."""
    host = urlsplit(url)
    assert host.hostname
    connection = http.client.HTTPConnection(host.hostname, host.port, timeout=TIMEOUT_S)
    while time.monotonic() < deadline:
        with record.lock:
            shot = next(shots, None)
        if shot is None:
            break
        for last_try in (False, True):
            fresh = connection.sock is None
            if shot.request.framed:
                connection.close()
                connection.timeout = FRAMED_TIMEOUT_S
            began = time.monotonic()
            try:
                answer = send(connection, shot.request)
                record.add(shot, answer, time.monotonic() - began, tolerate_busy=tolerate_busy)
                break
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                # The server may close an idle connection, but not a new one.
                if fresh or last_try or shot.request.framed:
                    record.fail(shot, error)
                    break
        if shot.request.framed:
            connection.close()
            connection.timeout = TIMEOUT_S
    connection.close()


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
    parser.add_argument("--first", type=int, default=0, help="index of the first request of the seed")
    parser.add_argument("--seed", type=int, default=1, help="seed of the requests")
    parser.add_argument("--concurrency", type=int, default=8, help="number of connections")
    parser.add_argument("--seconds", type=float, default=3600, help="time limit")
    parser.add_argument("--no-corpus", action="store_true", help="send only the requests of the seed")
    parser.add_argument("--tolerate-busy", action="store_true", help="do not count 429 and 503 as violations")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    shots = itertools.chain(() if options.no_corpus else corpus(), seeded(options.seed, options.count, options.first))
    record = Record()
    threads = [
        threading.Thread(
            target=shoot,
            args=(options.url, shots, record, began + options.seconds),
            kwargs={"tolerate_busy": options.tolerate_busy},
        )
        for _ in range(options.concurrency)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return report(record, time.monotonic() - began)


if __name__ == "__main__":
    raise SystemExit(main())
