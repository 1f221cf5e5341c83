"""Tests that skip for want of a tool: what installs it, and which of them may also do so where
CI is set.
"""

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

PACKAGES = {
    "chromium": "chromium-headless-shell",
    "curl": "curl",
    "debootstrap": "debootstrap",
    "dockerd": "docker.io",
    "go": "golang-go",
    "java": "default-jdk-headless",
    "kubectl": "kubernetes-client",
    "libb64": "libb64-0d",
    "promtool": "prometheus",
    "redis-server": "redis-server",
    "systemd-analyze": "systemd",
    "WebKitWebDriver": "webkit2gtk-driver",
    "Xvfb": "xvfb",
}
"""Debian's package of each program or library."""
ALLOWED_SKIPS = {
    "no reference data at": "it is not part of the repository",
    "the checkout has other weights": "they are its user's",
    "this processor has no bfloat16": "processors differ",
    "kubectl is older than 1.21": "Debian 12 has no newer one",
    "Debian's Python cannot be moved": "uv's builds are packed from another one",
}
"""Starts of the reasons for which a test may skip everywhere, and why."""
REMEDY = re.compile(r": (apt-get install|make) (.+)$")
FILE = "SKIPS"
"""Environment variable with a file in which several runs collect the reasons."""


def missing(*programs: str) -> str:
    """Return the reason for a skip without these programs."""
    return (
        f"no {', '.join(programs)} on PATH: apt-get install"
        f" {' '.join(PACKAGES[name] for name in programs)}"
    )


def require(program: str) -> str:
    """Return the path of a program, or skip the test."""
    return shutil.which(program) or pytest.skip(missing(program))


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return why a test was skipped."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def fail_if_not_allowed(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Make a failure of a skip where CI is set, unless its reason is allowed."""
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI"):
        reason = reason_of(report)
        if not reason.startswith(tuple(ALLOWED_SKIPS)):
            report.outcome, report.longrepr = "failed", f"skipped, although CI is set: {reason}"


def collected(reports: Iterable[pytest.TestReport]) -> list[list[str]]:
    """Return the reasons of this run's skipped tests, after those of earlier runs with the same
    file `SKIPS`.
    """
    reasons = [reason_of(report) for report in reports]
    if not (file := os.environ.get(FILE)):
        return [reasons]
    with Path(file).open("a+") as opened:
        opened.write(json.dumps(reasons) + "\n")
        opened.seek(0)
        return [json.loads(line) for line in opened]


def summary(runs: Sequence[Sequence[str]]) -> str:
    """Return how many tests were skipped, and one command that installs what they need.

    A test counts once for each of its parameters, as in pytest's own line at the end of each run.

    Args:
        runs: the reasons of the skipped tests of each run.
    """
    reasons = [reason for run in runs for reason in run]
    needed: dict[str, set[str]] = {"apt-get install": set(), "make": set()}
    others = []
    for reason in reasons:
        if remedy := REMEDY.search(reason):
            needed[remedy[1]].update(remedy[2].split())
        else:
            others.append(reason)
    command = " && ".join(
        " ".join([name, *sorted(words)]) for name, words in needed.items() if words
    )
    count = f"{len(reasons)} skipped"
    if len(runs) > 1:
        count += f" in all runs ({' + '.join(str(len(run)) for run in runs)})"
    parts = [count, *[f"what {len(reasons) - len(others)} need: {command}"] * bool(command)]
    return "; ".join(
        [*parts, *(f"{number} x {one_line(reason)}" for reason, number in Counter(others).items())]
    )


def one_line(text: str) -> str:
    """Return a text with single spaces in place of its line breaks."""
    return " ".join(text.split())
