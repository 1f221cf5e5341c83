"""Measured figures with their goals, and services to measure them on."""

import contextlib
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil
import requests

from harness import Server, launch_server, seconds_until
from harness.load import Replies

MEGABYTE = 2**20


@dataclass(frozen=True)
class Figure:
    """Measured value with its goal."""

    scenario: str
    label: str
    value: float
    goal: float
    unit: str = ""
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Return whether the goal is met."""
        return self.value >= self.goal if self.at_least else self.value <= self.goal


class AnswerKind(NamedTuple):
    """Status and reason of an answer."""

    status: int
    reason: str
    """`ok`, or a problem's type."""


REFUSALS = ("overloaded", "inference-timeout")
"""Reasons of 5xx answers that are no failures under overload."""
MIN_ANSWERS = 100_000
HEALTH_PATHS = ("/livez", "/readyz", "/healthz")
Start = Callable[..., AbstractContextManager[Server]]
"""Context manager that runs a service on `port`, by default a free one, with these settings."""
Scenario = Callable[[Start], Iterator[Figure]]


def starter(folder: Path, answers: Counter[AnswerKind], **common: str) -> Start:
    """Return a function that runs services, and stops each in whatever state it is.

    Args:
        folder: folder of the logs.
        answers: counter to which each service's answers are added, if it still reports them at the
            end.
        common: settings of all services.
    """
    count = 0

    @contextmanager
    def start(
        port: int | None = None, through: Sequence[str] = (), **settings: str
    ) -> Iterator[Server]:
        nonlocal count
        count += 1
        own = folder / str(count)
        own.mkdir(parents=True)
        server = launch_server(
            own / "log", port=port, wrapper=through, **(common | settings)
        ).wait_until_ready()
        try:
            yield server
            with contextlib.suppress(requests.RequestException):
                answers.update(answered(server))
        finally:
            end(server)

    return start


def answered(server: Server) -> Counter[AnswerKind]:
    """Return the service's answers by kind, from its metrics, except health paths, which may
    answer 503.
    """
    found: Counter[AnswerKind] = Counter()
    for labels, count in _samples(server, "mobile_sam_answers_total"):
        if labels["path"] not in HEALTH_PATHS:
            found[AnswerKind(int(labels["status"]), labels["reason"])] += int(count)
    return found


def end(server: Server) -> None:
    """Stop a service; kill the processes that do not stop."""
    if server.process.poll() is None:
        family = server.family()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.stop()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def wait_for_answers(outcomes: Replies) -> None:
    """Wait until a crowd has received more good answers."""
    before = len(outcomes.answered())
    assert seconds_until(lambda: len(outcomes.answered()) >= before + 20, 60) < 60


def unexpected_outcomes(name: str, outcomes: Replies, expected: set[str]) -> Figure:
    """Return the number of outcomes that are not among the expected ones."""
    reasons = outcomes.reasons()
    unexpected = sum(count for reason, count in reasons.items() if reason not in expected)
    return Figure(name, f"unexpected outcomes ({listed(reasons)})", unexpected, 0)


def listed(counts: Counter[str], most: int | None = None) -> str:
    """Return counts as text, the greatest first."""
    return ", ".join(f"{what} {count}" for what, count in counts.most_common(most))


def recovery(name: str, outcomes: Replies) -> Figure:
    """Return the share of good answers."""
    share = len(outcomes.answered()) / len(outcomes.all)
    return Figure(name, "share of good answers once ready again", share, 1, at_least=True)


def ready_afterwards(name: str, server: Server) -> Figure:
    """Return whether the service is ready now."""
    return Figure(name, "ready afterwards", abs(server.readiness() - 200), 0)


def died(name: str, server: Server, workers: list[psutil.Process]) -> Figure:
    """Return the number of workers that are no longer there."""
    return Figure(name, "workers that died", len(set(workers) - set(server.workers())), 0)


def restarts(server: Server) -> float:
    """Return the number of Triton's restarts since the service's start."""
    return sum(count for _, count in _samples(server, "mobile_sam_triton_restarts_total"))


def not_run(name: str, why: str) -> Figure:
    """Return the figure of a scenario that cannot run here."""
    return Figure(f"{name}: not run: {why}", "runs", 0, 1, at_least=True)


def _samples(server: Server, name: str) -> Iterator[tuple[dict[str, str], float]]:
    text = requests.get(f"{server.url}/metrics", timeout=60).text
    for labels, value in re.findall(rf"^{name}\{{(.*)\}} (\S+)", text, re.MULTILINE):
        yield dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value)


def table(figures: list[Figure]) -> str:
    """Return the figures as a Markdown table."""
    lines = ["| what happens | figure | measured | goal | |", "|---|---|---|---|---|"]
    for figure in figures:
        sign = "at least" if figure.at_least else "at most"
        value, goal = (
            f"{number:.4g} {figure.unit}".strip() for number in (figure.value, figure.goal)
        )
        verdict = "met" if figure.met else "**missed**"
        lines.append(
            f"| {figure.scenario} | {figure.label} | {value} | {sign} {goal} | {verdict} |"
        )
    return "\n".join(lines)


def failures(
    answers: Mapping[str, Counter[AnswerKind]], overloads: Container[str]
) -> Iterator[Figure]:
    """Yield figures of the service's own failures.

    Args:
        answers: answers in each scenario without injected faults.
        overloads: scenarios in which requests may be refused because there are too many.
    """
    bad: Counter[AnswerKind] = Counter()
    refused = 0
    for name, counts in answers.items():
        for answer, count in counts.items():
            if name in overloads and answer.reason in REFUSALS:
                refused += count
            elif answer.status >= 500:
                bad[answer] += count
    total = sum(counts.total() for counts in answers.values())
    seen = ", ".join(
        f"{answer.status} {answer.reason} {count}" for answer, count in bad.most_common()
    )
    name = "all hostile tools together, no fault injected"
    label = f"answers of 500 and more ({seen or 'none'}; {refused} more refused as too many)"
    yield Figure(name, label, bad.total(), 0)
    yield Figure(name, "answers", total, MIN_ANSWERS, at_least=True)
