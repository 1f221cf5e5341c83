"""What can befall a running service, and figures of how it bore it."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.chaos import victims
from tests.chaos.callers import JSON, Outcomes, click, crowd, mixed, percentile, photo
from tests.chaos.flood import flood
from tests.e2e.server import Server, start_server

AWAY = {"ok", "inference-unavailable", "inference-timeout", "closed"}
"""What callers may see while Triton is away."""
MODELS = ("mobile_sam", "mobile_sam_cached", "mobile_sam_everything", "mobile_sam_encoder", "mobile_sam_decoder")
MEGABYTE = 2**20


@dataclass(frozen=True)
class Figure:
    """One measured value beside its goal."""

    scenario: str
    what: str
    value: float
    goal: float
    unit: str = ""
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the goal is reached."""
        return self.value >= self.goal if self.at_least else self.value <= self.goal


Start = Callable[..., AbstractContextManager[Server]]
"""Gives a service for a while: on `port`, a free one unless told, and with these settings."""
Scenario = Callable[[Start], Iterator[Figure]]


def killed_triton(start: Start) -> Iterator[Figure]:
    """kill -9 of tritonserver under load."""
    name = "kill -9 tritonserver"
    began = time.monotonic()
    with start() as server:
        load = time.monotonic() - began
        with crowd(_port(server), mixed(), 4) as outcomes:
            _answers_come(outcomes)
            victims.triton(server).kill()
            gone = victims.until(lambda: victims.readiness(server) != 200, 10, 0.01)
            back = victims.until(lambda: victims.readiness(server) == 200, 60)
            moment = time.monotonic()
            _answers_come(outcomes)
        yield Figure(name, "not ready after", gone, 10, "s")
        yield Figure(name, f"ready again after (a start takes {load:.1f} s)", back, 15 + load, "s")
        yield from _faults(name, outcomes, AWAY)
        yield _works_again(name, outcomes.after(moment))


def killed_stubs(start: Start, models: Sequence[str] = MODELS) -> Iterator[Figure]:
    """kill -9 of one process of a Python model, of each kind."""
    with start() as server, crowd(_port(server), mixed(), 2) as outcomes:
        for model in models:
            name = f"kill -9 a process of {model}"
            victims.stubs(server, model)[0].kill()
            yield Figure(
                name, "not ready after", victims.until(lambda: victims.readiness(server) != 200, 30, 0.02), 10, "s"
            )
            yield Figure(name, "healed after", victims.until(lambda: victims.readiness(server) == 200, 90), 60, "s")
    yield from _faults("kill -9 a process of a model", outcomes, AWAY)


def stopped(start: Start, who: Callable[[Server], psutil.Process] = victims.triton) -> Iterator[Figure]:
    """SIGSTOP of tritonserver under load."""
    name = f"SIGSTOP {'tritonserver' if who is victims.triton else 'a process of a model'}"
    # In a container BentoML would start nothing again.
    with start(BENTOML_CONTAINERIZED="true") as server, crowd(_port(server), mixed(), 4) as outcomes:
        _answers_come(outcomes)
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
        _answers_come(outcomes)
    yield from _faults(name, outcomes, AWAY)
    yield _works_again(name, outcomes.after(moment))


def killed_worker(start: Start) -> Iterator[Figure]:
    """kill -9 of one API worker under load; in a container, where BentoML would not start another."""
    name = "kill -9 an API worker"
    with start(BENTOML_CONTAINERIZED="true") as server, crowd(_port(server), mixed(), 4) as outcomes:
        count = len(victims.workers(server))
        _answers_come(outcomes)
        moment = time.monotonic()
        victims.workers(server)[0].kill()
        back = victims.until(lambda: len(victims.workers(server)) == count, 40)
        time.sleep(3)
    lost = outcomes.reasons()["lost"] + outcomes.reasons()["closed"]
    others = [outcome for outcome in outcomes.after(moment + 0.2).all if outcome.reason not in {"ok", "closed"}]
    yield Figure(name, "requests lost, of callers it was answering", lost, 4)
    yield Figure(name, "requests that failed later", len(others), 0)
    yield Figure(name, "another one after", back, 60, "s")


def killed_service(start: Start) -> Iterator[Figure]:
    """kill -9 of the service's first process, and a new start on the same port."""
    name = "kill -9 the service"
    with start() as server:
        family = victims.family(server)
        with crowd(_port(server), mixed(), 2) as outcomes:
            _answers_come(outcomes)
            server.process.kill()
            server.process.wait()
        port = _port(server)
        began = time.monotonic()
        with start(port=port) as again:
            yield Figure(name, "ready again on the same port after", time.monotonic() - began, 60, "s")
            yield Figure(name, "processes left", len(victims.left_over(family, 45)), 0)
            yield Figure(name, "regions of shared memory left", len(victims.regions(server)), 0)
            answer = again.post(**json.loads(click(photo(1))[1]))
            yield Figure(name, "answers by then", answer.status_code, 200)


def told_to_stop(start: Start, times: int = 20) -> Iterator[Figure]:
    """SIGTERM under load, twice each time, again and again."""
    name = f"SIGTERM under load, {times} times"
    slowest, left, memory, all_outcomes, codes = 0.0, 0, 0, Outcomes(), set()
    for number in range(times):
        with start() as server:
            family = victims.family(server)
            assert victims.triton(server)
            assert victims.stubs(server)
            assert victims.regions(server)
            # Half of the times over kept connections, half over new ones.
            with crowd(_port(server), mixed(seed=number), 6, keep=number % 2 == 0) as outcomes:
                _answers_come(outcomes)
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
            left += len(victims.left_over(family, 2))
            memory += len(victims.regions(server))
    yield Figure(name, "slowest exit", slowest, 40, "s")
    yield from _faults(name, all_outcomes, {"ok", "stopping", "refused"})
    yield Figure(name, "processes and regions left", left + memory, 0)
    yield Figure(name, "exit status other than 0", len(codes - {0}), 0)


def overload(start: Start, seconds: float = 60) -> Iterator[Figure]:
    """Five times as many requests as can be answered."""
    name = f"5 x capacity for {seconds:g} s"
    with start() as server:
        port = _port(server)
        with crowd(port, mixed(seed=1), 8):
            time.sleep(3)  # caches fill
        before = _most(port, seconds / 3, seed=2)
        body = mixed(seed=3, prepared=int(1.1 * before * seconds))
        outcomes = flood(port, body, 5 * before, seconds)
        # What the machine can do changes from minute to minute.
        peak = (before + _most(port, seconds / 3, seed=4)) / 2
        asked = len(outcomes.all) / seconds
        refused = [outcome.seconds for outcome in outcomes.all if outcome.status == 503]
        yield Figure(
            name,
            f"answers/s ({peak:.1f} at most; {asked:.0f} asked)",
            len(outcomes.answered()) / seconds,
            0.9 * peak,
            "answers/s",
            at_least=True,
        )
        yield Figure(name, f"p99 of {len(refused)} refusals", 1000 * percentile(refused, 0.99), 100, "ms")
        yield from _faults(name, outcomes, {"ok", "overloaded", "closed"})
        yield Figure(name, "ready afterwards", abs(victims.readiness(server) - 200), 0)


def _most(port: int, seconds: float, seed: int) -> float:
    """Answers a second to eight callers, who ask as soon as they are answered."""
    body = mixed(seed=seed, prepared=int(20 * seconds))
    with crowd(port, body, 8) as outcomes:
        time.sleep(seconds)
        answered = len(outcomes.answered())
    return answered / seconds


def bombs(start: Start, gigabytes: float = 1.0) -> Iterator[Figure]:
    """A picture of a few bytes with many pixels, and a body without end."""
    with start() as server:
        port = _port(server)
        _ask(port, *click(photo(1)))
        for what, image in (("a PNG of 30,000 x 30,000 pixels", _bomb()), ("a PNG header of 2^31 pixels", _header())):
            inside = victims.stubs(server) + victims.workers(server)
            before, work = victims.resident(inside), _cpu(inside)
            with _peak(inside) as peak:
                status, data = _ask(port, *click(image))
            yield Figure(what, "status", status, 499)
            yield Figure(what, "is a problem", float(b"urn:mobile-sam:" in data), 1, at_least=True)
            yield Figure(what, "work", 1000 * (_cpu(inside) - work), 100, "ms")
            yield Figure(what, "more memory", (peak() - before) / MEGABYTE, 50, "MB")
        for announced in (True, False):
            what = f"a body of {gigabytes:g} GB{'' if announced else ' without a length'}"
            inside = victims.workers(server)
            before, work = victims.resident(inside), _cpu(inside)
            with _peak(inside) as peak:
                status = _pour(port, int(gigabytes * 2**30), announced=announced)
            yield Figure(what, "status", abs(status - 413), 0)
            yield Figure(what, "work", 1000 * (_cpu(inside) - work), 100 if announced else 1000, "ms")
            yield Figure(what, "more memory, in caps of 32 MiB", (peak() - before) / (32 * MEGABYTE), 2)


def fuzzed(start: Start, count: int = 20_000) -> Iterator[Figure]:
    """The corpus of bad bodies and images, nearly valid requests, and requests made from the API's document."""
    with start() as server:
        for what, module, more in (
            (f"the corpus and {count} mutated requests", "hammer", ["--count", str(count), "--seconds", "420"]),
            ("the API by its own document", "contract", ["--examples", "20", "--seconds", "60"]),
        ):
            status = subprocess.run([sys.executable, "-m", f"tests.fuzz.{module}", server.url, *more], check=False)
            yield Figure(what, "violations found", status.returncode, 0)
        yield Figure("fuzzing", "ready afterwards", abs(victims.readiness(server) - 200), 0)


def guided(_: Start, minutes: float = 10) -> Iterator[Figure]:
    """Fuzzing of the decoders, guided by what code an input reaches."""
    for target in ("images", "bodies"):
        command = [sys.executable, "-m", "tests.fuzz.guided", target, "--seconds", str(int(30 * minutes))]
        status = subprocess.run(command, check=False)
        yield Figure(f"guided fuzzing of {target}, {minutes / 2:g} minutes", "unexpected", status.returncode, 0)


def soak(start: Start, minutes: float = 20) -> Iterator[Figure]:
    """Mixed callers for a long time; memory and file descriptors should not grow."""
    name = f"soak, {minutes:g} minutes"
    with start() as server, crowd(_port(server), mixed(images=50, new=0.05), 4, pause=0.02) as outcomes:
        warm = min(180.0, 20 * minutes)
        time.sleep(warm)
        samples: list[tuple[float, int, int]] = []
        over = time.monotonic() + 60 * minutes - warm
        while time.monotonic() < over:
            inside = victims.family(server)
            samples.append((time.monotonic() / 60, victims.resident(inside), sum(p.num_fds() for p in inside)))
            time.sleep(5)
        yield Figure(name, "memory slope", _slope([(at, size / MEGABYTE) for at, size, _ in samples]), 1, "MB/min")
        yield Figure(name, "file descriptors, slope", _slope([(at, float(fds)) for at, _, fds in samples]), 0.5, "/min")
        done = list(outcomes.all)
        yield Figure(name, f"failed of {len(done)} requests", sum(not outcome.ok for outcome in done), 0)


def _answers_come(outcomes: Outcomes) -> None:
    """Wait until a crowd has had some more good answers."""
    before = len(outcomes.answered())
    assert victims.until(lambda: len(outcomes.answered()) >= before + 20, 60) < 60


def _faults(name: str, outcomes: Outcomes, expected: set[str]) -> Iterator[Figure]:
    odd = {reason: count for reason, count in outcomes.reasons().items() if reason not in expected}
    seen = ", ".join(f"{reason} {count}" for reason, count in outcomes.reasons().most_common())
    yield Figure(name, f"other outcomes than may be ({seen})", sum(odd.values()), 0)


def _works_again(name: str, outcomes: Outcomes) -> Figure:
    share = len(outcomes.answered()) / len(outcomes.all)
    return Figure(name, "share of good answers once it is ready again", share, 1, at_least=True)


def _port(server: Server) -> int:
    return int(server.url.rpartition(":")[2])


def _ask(port: int, path: str, body: bytes) -> tuple[int, bytes]:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("POST", path, body, JSON)
        response = connection.getresponse()
        return response.status, response.read()


def _bomb() -> bytes:
    """A real PNG file of 900 million pixels, a megabyte large."""
    program = "import sys; from PIL import Image; Image.new('1', (30000, 30000)).save(sys.stdout.buffer, 'PNG')"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout


def _header() -> bytes:
    """The head of a PNG file that says 65,535 x 32,768 pixels."""
    head = b"IHDR" + struct.pack(">IIBBBBB", 65535, 32768, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head)) + b"\0" * 64


def _pour(port: int, size: int, *, announced: bool) -> int:
    """Send a body of zeros until the server has had enough; the status that came."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        length = f"Content-Length: {size}" if announced else "Transfer-Encoding: chunked"
        connection.sendall(
            f"POST /mobile_sam HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{length}\r\n\r\n".encode()
        )
        part = bytes(MEGABYTE)
        framed = part if announced else b"100000\r\n" + part + b"\r\n"
        with contextlib.suppress(OSError):
            for _ in range(size // MEGABYTE):
                connection.sendall(framed)
        answer = b""
        with contextlib.suppress(OSError):
            while b"\r\n" not in answer and (data := connection.recv(65536)):
                answer += data
    return int(answer.split()[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def _cpu(processes: Sequence[psutil.Process]) -> float:
    return sum(times.user + times.system for times in (process.cpu_times() for process in processes))


@contextmanager
def _peak(processes: list[psutil.Process]) -> Iterator[Callable[[], int]]:
    """Most memory that processes held meanwhile, looked at every 5 ms."""
    most, over = [victims.resident(processes)], threading.Event()

    def look() -> None:
        while not over.wait(0.005):
            most[0] = max(most[0], victims.resident(processes))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    yield lambda: most[0]
    over.set()
    watcher.join()


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the line through the points with the least squares."""
    count = len(points)
    middle_x, middle_y = (sum(point[axis] for point in points) / count for axis in (0, 1))
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    return sum((x - middle_x) * (y - middle_y) for x, y in points) / spread if spread else 0.0


def starter(folder: Path) -> Start:
    """Starts services whose logs lie in a folder, and stops each in the end, however it is then."""
    count = 0

    @contextmanager
    def start(port: int | None = None, **settings: str) -> Iterator[Server]:
        nonlocal count
        count += 1
        own = folder / str(count)
        own.mkdir(parents=True)
        server = start_server(own / "log", port=port, **settings)
        try:
            yield server
        finally:
            end(server)

    return start


def end(server: Server) -> None:
    """Stop a service, and kill what does not stop."""
    if server.process.poll() is None:
        family = victims.family(server)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.stop()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
