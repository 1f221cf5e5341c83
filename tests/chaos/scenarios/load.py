"""Overload, fuzzing and a soak test."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil

from benchmarks.figures import percentile
from harness import ROOT, Server
from harness.load import crowd, open_loop
from harness.server import resident_bytes
from tests.chaos.callers import mixed
from tests.chaos.figures import MEGABYTE, Figure, Start, ready_afterwards, unexpected_outcomes
from tests.chaos.processes import shared_memory
from tests.fuzz.corpus import surprises

CONTRACT = ROOT / "tests" / "fuzz" / "schemathesis.toml"


def overload(start: Start, seconds: float = 60) -> Iterator[Figure]:
    """Send five times as many requests as the service can answer."""
    name = f"5 x capacity for {seconds:g} s"
    with start() as server:
        port = server.port
        with crowd(port, mixed(seed=1), 8):
            time.sleep(3)  # fill the caches
        before = _capacity(port, seconds / 3, seed=2)
        body = mixed(seed=3, prepared=int(1.1 * before * seconds))
        outcomes = open_loop(port, [body() for _ in range(int(5 * before * seconds))], 5 * before)
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
        yield Figure(name, f"p99 of {len(refused)} refusals", 1000 * percentile(refused or [0.0], 99), 100, "ms")
        yield unexpected_outcomes(name, outcomes, {"ok", "overloaded", "closed"})
        yield ready_afterwards(name, server)


def _capacity(port: int, seconds: float, seed: int) -> float:
    """Return the answers per second to eight callers in a closed loop."""
    body = mixed(seed=seed, prepared=int(20 * seconds))
    with crowd(port, body, 8) as outcomes:
        time.sleep(seconds)
        answered = len(outcomes.answered())
    return answered / seconds


def fuzzed(start: Start) -> Iterator[Figure]:
    """Send the corpus, and requests generated from the OpenAPI document."""
    with start() as server:
        found = list(surprises(server.url))
        print(*found, sep="\n")
        yield Figure("the corpus of damaged files", "unexpected answers", len(found), 0)
        program = Path(sys.executable).with_name("schemathesis")
        command = [str(program), "--config-file", str(CONTRACT), "run", f"{server.url}/docs.json", "--url", server.url]
        status = subprocess.run(command, cwd=ROOT, check=False)
        yield Figure("requests generated from the OpenAPI document", "violations found", status.returncode, 0)
        yield ready_afterwards("fuzzing", server)


class Held(NamedTuple):
    """What a service holds at one moment."""

    memory_mb: float
    shared_memory_mb: float
    disk_mb: float
    descriptors: float
    threads: float


SLOPES = Held(memory_mb=1.0, shared_memory_mb=1.0, disk_mb=1.0, descriptors=0.5, threads=0.5)
"""Goals for the growth of each per minute."""
SAMPLES_EVERY_S = 5.0


def soak(start: Start, minutes: float = 20) -> Iterator[Figure]:
    """Run mixed callers for a long time; memory, disk, file descriptors and threads should not grow.

    The cache of embeddings is small, so that it is full before the first sample.
    """
    name = f"soak, {minutes:g} minutes"
    settings = {"MOBILE_SAM_EMBEDDING_CACHE_BYTES": str(64 * MEGABYTE)}
    with start(**settings) as server, crowd(server.port, mixed(images=20, new=0.05), 4, pause=0.02) as outcomes:
        warm = min(180.0, 20 * minutes)
        time.sleep(warm)
        minutes_in, samples = list[float](), list[Held]()
        over = time.monotonic() + 60 * minutes - warm
        while time.monotonic() < over:
            with contextlib.suppress(psutil.NoSuchProcess):
                samples.append(_held(server))
                minutes_in.append(time.monotonic() / 60)
            time.sleep(SAMPLES_EVERY_S)
        for what, goal, values in zip(Held._fields, SLOPES, zip(*samples, strict=True), strict=True):
            label = f"{what.replace('_', ' ')}, slope (first {values[0]:.0f}, last {values[-1]:.0f})"
            yield Figure(name, label, float(np.polyfit(minutes_in, values, 1)[0]), goal, "/min")
        done = list(outcomes.all)
        yield Figure(name, f"failed of {len(done)} requests", sum(not outcome.ok for outcome in done), 0)


def _held(server: Server) -> Held:
    """Return what a service holds; its disk is the cache of embeddings beside its log."""
    inside = server.family()
    files = [file for file in (server.log.parent / "embeddings").rglob("*") if file.is_file()]
    return Held(
        resident_bytes(inside) / MEGABYTE,
        shared_memory(server) / MEGABYTE,
        sum(_size(file) for file in files) / MEGABYTE,
        sum(process.num_fds() for process in inside),
        sum(process.num_threads() for process in inside),
    )


def _size(file: Path) -> int:
    """Return the size of a file, 0 if it has gone."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
