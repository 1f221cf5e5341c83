"""Taking turns: what else the machine does meets all arms of a measurement alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from tqdm import tqdm

from benchmarks.figures import percentile, ratios, table

WARM_UP = 3


def seconds(work: Callable[[], object]) -> float:
    """How long the work takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def interleaved(arms: Mapping[str, Callable[[], object]], rounds: int, title: str) -> dict[str, list[float]]:
    """Seconds of each arm in each round after the warm-up; the arms take turns."""
    times: dict[str, list[float]] = {name: [] for name in arms}
    for index in tqdm(range(WARM_UP + rounds), desc=title, unit="round"):
        for name, work in arms.items():
            taken = seconds(work)
            if index >= WARM_UP:
                times[name].append(taken)
    return times


def ratio_table(times: Mapping[str, Sequence[float]], baselines: Mapping[str, str]) -> str:
    """Each arm's median and 95th percentile, and the median over the rounds of its ratio to its baseline.

    Args:
        times: seconds of each arm in each round.
        baselines: the baseline of each arm that has one.
    """
    rows = []
    for name, values in times.items():
        base = baselines.get(name)
        over = (ratios(values, times[base]), base) if base else ("", "")
        rows.append((name, statistics.median(values) * 1e3, percentile(values, 95) * 1e3, *over))
    return table(("", "p50 ms", "p95 ms", "ratio (quartiles)", "to"), rows)
