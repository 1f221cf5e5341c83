"""Ratios and numbers of tables."""

import pytest

from benchmarks.stats import ratios, short


def test_ratio_is_the_median_of_ratios_not_the_ratio_of_medians():
    assert ratios([1.0, 20.0, 3.0], [1.0, 10.0, 1.0]).median == 2.0
    with pytest.raises(ValueError, match="argument 2"):
        ratios([1.0, 2.0], [1.0])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0"),
        (0.001234, "0.00123"),
        (1.0, "1.00"),
        (42.42, "42.4"),
        (12345.6, "12346"),
        (-2.5, "-2.50"),
    ],
)
def test_short_keeps_three_significant_digits(value, expected):
    assert short(value) == expected
