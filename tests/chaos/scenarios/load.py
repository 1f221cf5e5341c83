"""Overload and fuzzing."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.stats import percentile
from harness import ROOT
from harness.load import crowd, open_loop
from tests.chaos.callers import mixed
from tests.chaos.figures import Figure, Start, ready_afterwards, unexpected_outcomes
from tests.fuzz.corpus import surprises

CONTRACT = ROOT / "tests" / "fuzz" / "schemathesis.toml"
LEAST_REQUESTS = 600
"""More than the service answers and lets wait in a short run, although a busy machine seemed
slower."""


def overload(start: Start, seconds: float = 60) -> Iterator[Figure]:
    """Send five times as many requests as the service can answer."""
    name = f"5 x capacity for {seconds:g} s"
    with start() as server:
        port = server.port
        with crowd(port, mixed(seed=1), 8):
            time.sleep(3)  # fill the caches
        before = _capacity(port, seconds / 3, seed=2)
        body = mixed(seed=3, prepared=int(1.1 * before * seconds))
        count = max(int(5 * before * seconds), LEAST_REQUESTS)
        outcomes = open_loop(port, [body() for _ in range(count)], count / seconds)
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
        yield Figure(
            name,
            f"p99 of {len(refused)} refusals",
            1000 * percentile(refused or [float("inf")], 99),
            100,
            "ms",
        )
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
        command = [
            str(program),
            "--config-file",
            str(CONTRACT),
            "run",
            f"{server.url}/docs.json",
            "--url",
            server.url,
        ]
        status = subprocess.run(command, cwd=ROOT, check=False)
        yield Figure(
            "requests generated from the OpenAPI document", "violations found", status.returncode, 0
        )
        yield ready_afterwards("fuzzing", server)
