"""Costs of requests, read from docs/performance.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.costs import mean, read_costs
from benchmarks.replicas import KNOWN, NEW

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "performance.md").read_text()


def test_costs_are_read_from_the_performance_page():
    costs = read_costs(PAGE)
    known, new = costs.works[KNOWN], costs.works[NEW]
    assert 0 < known.core_seconds < new.core_seconds < 10
    assert 0 < known.alone_s < new.alone_s < 10
    assert 0 < known.spread < 1
    assert 0 < costs.beside_model[KNOWN] < costs.beside_model[NEW] < new.core_seconds
    assert 100 < costs.answer_bytes < 60_000


def test_page_without_measurements_is_rejected():
    with pytest.raises(ValueError, match="expected the generated block closed"):
        read_costs("# Performance")


def test_mean_is_weighted_by_the_share_of_new_images():
    assert mean({KNOWN: 1.0, NEW: 11.0}, 0.1) == pytest.approx(2.0)
