"""How skipped tests are counted, over the two runs of `make test`."""

from types import SimpleNamespace

import pytest

from tests import skips


def report(reason: str) -> pytest.TestReport:
    """Return what is read of the report of a skipped test."""
    skipped: object = SimpleNamespace(longrepr=("a file", 7, f"Skipped: {reason}"))
    assert isinstance(skipped, SimpleNamespace)
    return skipped  # type: ignore[return-value]


def test_the_last_line_counts_the_tests_of_all_runs(monkeypatch, tmp_path):
    monkeypatch.setenv("SKIPS", str(tmp_path / "skips"))
    first = [
        report("no go on PATH: apt-get install golang-go"),
        report("other\nweights"),
        report("other\nweights"),
    ]
    assert (
        skips.summary(skips.collected(first))
        == "3 skipped; what 1 need: apt-get install golang-go; 2 x other weights"
    )
    runs = skips.collected([report("no curl on PATH: apt-get install curl")])
    assert (
        skips.summary(runs)
        == "4 skipped in all runs (3 + 1); what 2 need: apt-get install curl golang-go; 2 x other"
        " weights"
    )


def test_a_single_run_counts_its_own_tests(monkeypatch):
    monkeypatch.delenv("SKIPS", raising=False)
    runs = skips.collected([report("no environment: make env-text")])
    assert skips.summary(runs) == "1 skipped; what 1 need: make env-text"
