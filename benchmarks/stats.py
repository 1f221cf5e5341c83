"""Times of functions that take turns, their percentiles, quartiles and ratios, and Markdown
tables.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

WARM_UP = 3
"""Uncounted rounds of `interleaved`."""


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of the rounds' figures."""

    median: float
    low: float
    """Lower quartile."""
    high: float
    """Upper quartile."""

    def __str__(self) -> str:
        return f"{short(self.median)} ({short(self.low)}-{short(self.high)})"


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the nearest-rank percentile."""
    return float(np.percentile(values, percent, method="inverted_cdf"))


def spread(values: Sequence[float]) -> Spread:
    """Return median and quartiles."""
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
    return Spread(middle, low, high)


def ratios(values: Sequence[float], baseline: Sequence[float]) -> Spread:
    """Return the spread of each round's ratio to the baseline."""
    return spread([value / base for value, base in zip(values, baseline, strict=True)])


def short(value: float) -> str:
    """Format a number with three significant digits."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{places}f}"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table with aligned columns; floats are shortened."""
    cells = [
        list(header),
        *([short(cell) if isinstance(cell, float) else str(cell) for cell in row] for row in rows),
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(len(header))]
    lines = [
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def seconds(work: Callable[[], object]) -> float:
    """Run a function; return the seconds it takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(
    arms: Mapping[str, Callable[[], object]], rounds: int, title: str
) -> dict[str, list[float]]:
    """Time the arms in turns; return the seconds of each arm in each round after the warm-up."""
    times: dict[str, list[float]] = {name: [] for name in arms}
    for index in tqdm(range(WARM_UP + rounds), desc=title, unit="round"):
        for name, work in arms.items():
            elapsed = seconds(work)
            if index >= WARM_UP:
                times[name].append(elapsed)
    return times
