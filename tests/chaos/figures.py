"""Figures beside their goals, and services to measure them on."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil
import requests

from tests.chaos import victims
from tests.chaos.callers import Outcomes
from tests.e2e.server import Server, start_server

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


class Answered(NamedTuple):
    """A kind of answer."""

    status: int
    reason: str
    """`ok`, or a problem's type."""


HEALTH_PATHS = ("/livez", "/readyz", "/healthz")
Start = Callable[..., AbstractContextManager[Server]]
"""Gives a service for a while: on `port`, a free one unless told, and with these settings."""
Scenario = Callable[[Start], Iterator[Figure]]


def starter(folder: Path, answers: Counter[Answered], **common: str) -> Start:
    """Starts services whose logs lie in a folder, and stops each in the end, however it is then.

    Args:
        folder: for the logs.
        answers: to which those of each service are added, of which it can still be asked in the end.
        common: settings of all of them.
    """
    count = 0

    @contextmanager
    def start(port: int | None = None, through: Sequence[str] = (), **settings: str) -> Iterator[Server]:
        nonlocal count
        count += 1
        own = folder / str(count)
        own.mkdir(parents=True)
        server = start_server(own / "log", port=port, through=through, **(common | settings))
        try:
            yield server
            with contextlib.suppress(requests.RequestException):
                answers.update(answered(server))
        finally:
            end(server)

    return start


def answered(server: Server) -> Counter[Answered]:
    """How often a service has answered how, by its own metrics; not at its health paths, which rightly say 503."""
    found: Counter[Answered] = Counter()
    for labels, count in _samples(server, "mobile_sam_answers_total"):
        if labels["path"] not in HEALTH_PATHS:
            found[Answered(int(labels["status"]), labels["reason"])] += int(count)
    return found


def end(server: Server) -> None:
    """Stop a service, and kill what does not stop."""
    if server.process.poll() is None:
        family = victims.family(server)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.stop()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def answers_come(outcomes: Outcomes) -> None:
    """Wait until a crowd has had some more good answers."""
    before = len(outcomes.answered())
    assert victims.until(lambda: len(outcomes.answered()) >= before + 20, 60) < 60


def other_outcomes(name: str, outcomes: Outcomes, expected: set[str]) -> Iterator[Figure]:
    odd = {reason: count for reason, count in outcomes.reasons().items() if reason not in expected}
    seen = ", ".join(f"{reason} {count}" for reason, count in outcomes.reasons().most_common())
    yield Figure(name, f"other outcomes than may be ({seen})", sum(odd.values()), 0)


def works_again(name: str, outcomes: Outcomes) -> Figure:
    share = len(outcomes.answered()) / len(outcomes.all)
    return Figure(name, "share of good answers once it is ready again", share, 1, at_least=True)


def port_of(server: Server) -> int:
    return int(server.url.rpartition(":")[2])


def restarts(server: Server) -> int:
    """How often Triton was started again."""
    return int(sum(count for _, count in _samples(server, "mobile_sam_triton_restarts_total")))


def _samples(server: Server, name: str) -> Iterator[tuple[dict[str, str], float]]:
    text = requests.get(f"{server.url}/metrics", timeout=10).text
    for labels, value in re.findall(rf"^{name}\{{(.*)\}} (\S+)", text, re.MULTILINE):
        yield dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value)
