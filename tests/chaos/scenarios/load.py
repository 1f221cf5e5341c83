"""Overload, fuzzing and a soak test."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from tests.chaos import victims
from tests.chaos.callers import crowd, mixed, percentile
from tests.chaos.figures import MEGABYTE, Figure, Start, port_of, unexpected_outcomes
from tests.chaos.flood import flood


def overload(start: Start, seconds: float = 60) -> Iterator[Figure]:
    """Send five times as many requests as the service can answer."""
    name = f"5 x capacity for {seconds:g} s"
    with start() as server:
        port = port_of(server)
        with crowd(port, mixed(seed=1), 8):
            time.sleep(3)  # fill the caches
        before = _capacity(port, seconds / 3, seed=2)
        body = mixed(seed=3, prepared=int(1.1 * before * seconds))
        outcomes = flood(port, body, 5 * before, seconds)
        # The machine's capacity varies from minute to minute.
        peak = (before + _capacity(port, seconds / 3, seed=4)) / 2
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
        yield from unexpected_outcomes(name, outcomes, {"ok", "overloaded", "closed"})
        yield Figure(name, "ready afterwards", abs(victims.readiness(server) - 200), 0)


def _capacity(port: int, seconds: float, seed: int) -> float:
    """Return the answers per second to eight callers in a closed loop."""
    body = mixed(seed=seed, prepared=int(20 * seconds))
    with crowd(port, body, 8) as outcomes:
        time.sleep(seconds)
        answered = len(outcomes.answered())
    return answered / seconds


def fuzzed(start: Start, count: int = 55_000) -> Iterator[Figure]:
    """Send the corpus, mutated requests, and requests generated from the OpenAPI document."""
    with start() as server:
        for name, module, more in (
            (f"the corpus and {count} mutated requests", "hammer", ["--count", str(count), "--seconds", "600"]),
            ("requests generated from the OpenAPI document", "contract", ["--examples", "20", "--seconds", "40"]),
        ):
            status = subprocess.run([sys.executable, "-m", f"tests.fuzz.{module}", server.url, *more], check=False)
            yield Figure(name, "violations found", status.returncode, 0)
        yield Figure("fuzzing", "ready afterwards", abs(victims.readiness(server) - 200), 0)


def guided(_: Start, minutes: float = 10) -> Iterator[Figure]:
    """Fuzz the decoders, guided by code coverage."""
    for target in ("images", "bodies"):
        command = [sys.executable, "-m", "tests.fuzz.guided", target, "--seconds", str(int(30 * minutes))]
        status = subprocess.run(command, check=False)
        yield Figure(f"guided fuzzing of {target}, {minutes / 2:g} minutes", "unexpected", status.returncode, 0)


def soak(start: Start, minutes: float = 20) -> Iterator[Figure]:
    """Run mixed callers for a long time; memory and file descriptors should not grow."""
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
    """Return the slope of the least-squares line through the points."""
    count = len(points)
    middle_x, middle_y = (sum(point[axis] for point in points) / count for axis in (0, 1))
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    return sum((x - middle_x) * (y - middle_y) for x, y in points) / spread if spread else 0.0
