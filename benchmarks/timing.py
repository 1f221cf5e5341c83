"""Taking turns: what else the machine does meets all arms of a measurement alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from tqdm import tqdm

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


def show_ratios(times: Mapping[str, Sequence[float]], baselines: Mapping[str, str]) -> None:
    """Print each arm's median and 95th percentile, and the median over the rounds of its ratio to its baseline.

    Args:
        times: seconds of each arm in each round.
        baselines: the baseline of each arm that has one.
    """
    print(f"\n{'arm':48} {'p50 ms':>8} {'p95 ms':>8} {'ratio':>6}   quartiles of the ratio, and to what")
    for name, values in times.items():
        line = f"{name:48} {statistics.median(values) * 1e3:8.1f} {p95(values) * 1e3:8.1f}"
        if name in baselines:
            ratios = [value / base for value, base in zip(values, times[baselines[name]], strict=True)]
            low, middle, high = statistics.quantiles(ratios, n=4)
            line += f" {middle:6.3f}   {low:.3f} .. {high:.3f} of {baselines[name]}"
        print(line)


def p95(values: Sequence[float]) -> float:
    """The 95th percentile."""
    return statistics.quantiles(values, n=20)[-1]
