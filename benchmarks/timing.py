"""Interleaved timing: the arms take turns, so that other load on the machine affects all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from tqdm import tqdm

from benchmarks.figures import percentile, ratios, table

WARM_UP = 3


def seconds(work: Callable[[], object]) -> float:
    """Run a function; return the seconds it takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleaved(arms: Mapping[str, Callable[[], object]], rounds: int, title: str) -> dict[str, list[float]]:
    """Time the arms in turns; return the seconds of each arm in each round after the warm-up."""
    times: dict[str, list[float]] = {name: [] for name in arms}
    for index in tqdm(range(WARM_UP + rounds), desc=title, unit="round"):
        for name, work in arms.items():
            taken = seconds(work)
            if index >= WARM_UP:
                times[name].append(taken)
    return times


def ratio_table(times: Mapping[str, Sequence[float]], baselines: Mapping[str, str]) -> str:
    """Return a table of each arm's median, 95th percentile and median ratio to its baseline.

    Args:
        times: seconds of each arm in each round.
        baselines: name of the baseline, for each arm that has one.
    """
    rows = []
    for name, values in times.items():
        base = baselines.get(name)
        over = (ratios(values, times[base]), base) if base else ("", "")
        rows.append((name, statistics.median(values) * 1e3, percentile(values, 95) * 1e3, *over))
    return table(("", "p50 ms", "p95 ms", "ratio (quartiles)", "to"), rows)
