"""Skipped tests: the summary, and failures instead where CI is set."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import skips

ROOT = Path(__file__).resolve().parents[2]


def skipped(reason: str) -> Any:
    return SimpleNamespace(skipped=True, outcome="skipped", longrepr=("a file", 1, f"Skipped: {reason}"))


@pytest.mark.parametrize(
    ("reason", "ci", "outcome"),
    [
        (skips.missing("go"), "true", "failed"),
        (skips.missing("go"), "", "skipped"),
        ("this processor has no bfloat16", "true", "skipped"),
    ],
)
def test_skip_for_want_of_a_tool_is_a_failure_where_ci_is_set(monkeypatch, reason, ci, outcome):
    monkeypatch.setenv("CI", ci)
    report = skipped(reason)
    skips.fail_if_not_allowed(report)
    assert report.outcome == outcome
    assert reason in str(report.longrepr)


def test_expected_failure_is_no_skip(monkeypatch):
    monkeypatch.setenv("CI", "true")
    report = skipped("a bug")
    report.wasxfail = "a bug"
    skips.fail_if_not_allowed(report)
    assert report.outcome == "skipped"


def test_summary_is_one_line_with_one_command(monkeypatch, tmp_path):
    monkeypatch.setenv(skips.FILE, str(tmp_path / "skips"))
    first = [
        skips.missing("kubectl"),
        f"some passed; {skips.missing('go', 'java')}",
        "not installed: torch: make env-text",
    ]
    assert skips.collected(map(skipped, first)) == first
    reasons = skips.collected(map(skipped, [first[0], "a reason", "a reason"]))
    assert skips.summary(reasons) == (
        "6 skipped; what 4 need: apt-get install default-jdk-headless golang-go kubernetes-client && make env-text; "
        "2 x a reason"
    )
    monkeypatch.delenv(skips.FILE)
    assert skips.collected(map(skipped, ["a reason"])) == ["a reason"]


def test_ci_installs_every_package_that_tests_need():
    (line,) = re.findall(r"^apt-get install (.+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert set(skips.PACKAGES.values()) <= set(re.findall(r"[\w.-]+", line))
