"""More requests than can be answered, odd ones, and many for a long time."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from tests.chaos import victims
from tests.chaos.callers import crowd, mixed, percentile
from tests.chaos.figures import MEGABYTE, Figure, Start, other_outcomes, port_of
from tests.chaos.flood import flood


def overload(start: Start, seconds: float = 60) -> Iterator[Figure]:
    """Five times as many requests as can be answered."""
    name = f"5 x capacity for {seconds:g} s"
    with start() as server:
        port = port_of(server)
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
        yield from other_outcomes(name, outcomes, {"ok", "overloaded", "closed"})
        yield Figure(name, "ready afterwards", abs(victims.readiness(server) - 200), 0)


def _most(port: int, seconds: float, seed: int) -> float:
    """Answers a second to eight callers, who ask as soon as they are answered."""
    body = mixed(seed=seed, prepared=int(20 * seconds))
    with crowd(port, body, 8) as outcomes:
        time.sleep(seconds)
        answered = len(outcomes.answered())
    return answered / seconds


def fuzzed(start: Start, count: int = 20_000) -> Iterator[Figure]:
    """The corpus of bad bodies and images, nearly valid requests, and requests made from the API's document."""
    with start() as server:
        for what, module, more in (
            (f"the corpus and {count} mutated requests", "hammer", ["--count", str(count), "--seconds", "240"]),
            ("the API by its own document", "contract", ["--examples", "20", "--seconds", "40"]),
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
    with start() as server, crowd(port_of(server), mixed(images=50, new=0.05), 4, pause=0.02) as outcomes:
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


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the line through the points with the least squares."""
    count = len(points)
    middle_x, middle_y = (sum(point[axis] for point in points) / count for axis in (0, 1))
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    return sum((x - middle_x) * (y - middle_y) for x, y in points) / spread if spread else 0.0
