"""Percentiles, ratios and tables."""

import pytest

from benchmarks.figures import percentile, ratios, short, spread, table


@pytest.mark.parametrize(("percent", "expected"), [(0, 1), (50, 50), (95, 95), (99, 99)])
def test_percentile_is_one_of_the_values(percent, expected):
    assert percentile(list(range(100, 0, -1)), percent) == expected
    with pytest.raises(ValueError, match="at least one value"):
        percentile([], percent)


def test_ratio_is_the_median_of_ratios_not_the_ratio_of_medians():
    assert ratios([1.0, 20.0, 3.0], [1.0, 10.0, 1.0]).median == 2.0
    with pytest.raises(ValueError, match="argument 2"):
        ratios([1.0, 2.0], [1.0])


def test_spread_has_the_quartiles():
    found = spread([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (found.low, found.median, found.high) == (2.0, 3.0, 4.0)
    assert str(spread([2.0])) == "2.00 (2.00-2.00)"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.0, "0"), (0.001234, "0.00123"), (1.0, "1.00"), (42.42, "42.4"), (12345.6, "12346"), (-2.5, "-2.50")],
)
def test_short_keeps_three_significant_digits(value, expected):
    assert short(value) == expected


def test_table_is_aligned_markdown():
    assert table(("arm", "ms"), [("ours", 1.0), ("raw", 12.345)]).splitlines() == [
        "| arm  | ms   |",
        "|------|------|",
        "| ours | 1.00 |",
        "| raw  | 12.3 |",
    ]
