"""What is made of measured times: percentiles, quartiles, ratios, and tables of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """The median of the rounds' figures, and how far apart they are."""

    median: float
    low: float
    """Lower quartile."""
    high: float
    """Upper quartile."""

    def __str__(self) -> str:
        return f"{short(self.median)} ({short(self.low)} to {short(self.high)})"


def percentile(values: Sequence[float], percent: float) -> float:
    """The least value that so many per cent of the values do not exceed."""
    if not values:
        raise ValueError("expected at least one value, got none")
    ranked = sorted(values)
    return ranked[max(0, math.ceil(percent / 100 * len(ranked)) - 1)]


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(middle, low, high)


def ratios(values: Sequence[float], baseline: Sequence[float]) -> Spread:
    """Of each round's figure to the baseline's of the same round."""
    return spread([value / base for value, base in zip(values, baseline, strict=True)])


def short(value: float) -> str:
    """A figure with three digits that count."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{places}f}"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown, its columns aligned so that a terminal shows it as well; floats are shortened."""
    cells = [list(header), *([short(cell) if isinstance(cell, float) else str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(header))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
