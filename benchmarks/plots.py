"""Plots of the measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.ticker import LogLocator

from benchmarks.answer import COLUMNS
from benchmarks.arms import OURS, SAME_ENGINE, TRITON, WITHOUT_TRITON
from benchmarks.closed import Cells
from benchmarks.figures import Spread, percentile, short
from benchmarks.workloads import WORKLOADS

COLOURS = {OURS: "#0b6e4f", SAME_ENGINE: "#4c9a7d", TRITON: "#73b797", WITHOUT_TRITON: "#d17a22"}
OTHER = ("#6d6a75", "#a3a0aa", "#c9c6cf", "#3a3740")
plt.rcParams["svg.hashsalt"] = "mobile-sam-triton"  # for reproducible files
plt.rcParams["svg.fonttype"] = "none"


def latency(cells: Cells, path: Path) -> None:
    """Plot median latency, with a band up to the 95th percentile, over the number of callers."""
    figure, panels = plt.subplots(1, len(WORKLOADS), figsize=(11, 3.6), constrained_layout=True)
    for panel, workload in zip(panels, WORKLOADS, strict=True):
        names = list(dict.fromkeys(cell.arm for cell in cells.rounds if cell.workload == workload))
        for arm in names:
            found = sorted(
                (cell for cell in cells.rounds if (cell.arm, cell.workload) == (arm, workload)),
                key=lambda cell: cell.concurrency,
            )
            if len(found) < 2:
                continue
            callers = [cell.concurrency for cell in found]
            middle, high = (
                [percentile(cells.latencies(cell), percent) * 1e3 for cell in found] for percent in (50, 95)
            )
            colour = COLOURS.get(arm, OTHER[names.index(arm) % len(OTHER)])
            panel.plot(callers, middle, "o-", color=colour, label=arm)
            panel.fill_between(callers, middle, high, color=colour, alpha=0.15)
        panel.set(title=workload, xlabel="callers", yscale="log", xscale="log")
        panel.set_xticks([1, 2, 4, 8], labels=["1", "2", "4", "8"], minor=False)
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter("{x:g}")
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("latency, ms: median, band to p95")
    lines = {line.get_label(): line for panel in panels for line in panel.get_lines()}
    figure.legend(lines.values(), lines.keys(), loc="outside upper center", ncols=len(lines), fontsize="small")
    _save(figure, path)


def answer(figures: Mapping[str, Sequence[Spread]], path: Path) -> None:
    """Plot answers per second as bars, with one panel per load.

    Args:
        figures: answers per second by arm, in the order of `benchmarks.answer.COLUMNS`.
        path: file to write.
    """
    figure, panels = plt.subplots(1, len(COLUMNS), figsize=(11, 2.2), constrained_layout=True, sharey=True)
    for column, (panel, title) in enumerate(zip(panels, COLUMNS, strict=True)):
        for row, (arm, spreads) in enumerate(figures.items()):
            found = spreads[column]
            bar = panel.barh(row, found.median, color=COLOURS.get(arm, OTHER[0]))
            panel.bar_label(bar, [short(found.median)], padding=3, fontsize="small")
        panel.set(title=title, xlabel="answers a second")
        panel.margins(x=0.2)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(range(len(figures)), labels=list(figures))
    panels[0].invert_yaxis()
    _save(figure, path)


def _save(figure: plt.Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
