"""Figures of the service with the plan for a GPU, their goals, and what each change of the plan
does to them.
"""

import hashlib
import statistics
from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import gpu_plans
from benchmarks.closed_loop import Cell, Cells, closed_loop
from benchmarks.gpu_plans import Variant
from benchmarks.photo import photo
from benchmarks.servers import CACHED, COLD, EVERYTHING, OURS, ServerArm, compare_masks
from benchmarks.service import CACHE
from benchmarks.stats import percentile, seconds, table
from harness.load import json_request

ALONE, KNOWN, TOGETHER = Cell(OURS, COLD), Cell(OURS, CACHED), Cell(OURS, COLD, 16)
WITH = "the plan"


@dataclass(frozen=True)
class Effort:
    """Requests of the measurements."""

    requests: Mapping[Cell, int]
    """Requests of a round."""
    rounds: int
    points_per_side: int
    """Points along each side of the grid for all masks."""


FULL = Effort({ALONE: 10, KNOWN: 30, TOGETHER: 80}, rounds=5, points_per_side=32)
FEW = Effort({ALONE: 2, KNOWN: 6, TOGETHER: 4}, rounds=2, points_per_side=4)


@dataclass(frozen=True)
class Goal:
    """A figure and its bound."""

    title: str
    figure: float
    bound: float
    at_least: bool = False
    """Whether the bound is the least value instead of the largest."""

    @property
    def is_met(self) -> bool:
        """Return whether the figure keeps to the bound."""
        return self.figure >= self.bound if self.at_least else self.figure <= self.bound

    def row(self) -> tuple[str, float, str, str]:
        """Return the row of the table."""
        sign = ">=" if self.at_least else "<="
        return self.title, self.figure, f"{sign} {self.bound:g}", "met" if self.is_met else "missed"


def everything_ms(arm: ServerArm, effort: Effort) -> float:
    """Return the median time to find all masks of the known photo; raise RuntimeError if they
    are not found.
    """
    fields = {
        "image_id": hashlib.sha256(photo()).hexdigest(),
        "points_per_side": effort.points_per_side,
    }
    request = json_request({**fields, "progress": True}, "/everything")  # has no time limit

    def find() -> None:
        *_, last = arm.server.send(request).iter_lines()
        if b'"result"' not in last:
            raise RuntimeError(f"expected all masks, got {last!r}")

    return 1e3 * statistics.median(seconds(find) for _ in range(effort.rounds))


def goals_table(cells: Cells, everything: float, points_per_side: int) -> str:
    """Return a table of the figures that have goals.

    Args:
        cells: figures of `ALONE`, `KNOWN` and `TOGETHER`.
        everything: time for all masks in milliseconds.
        points_per_side: points along each side of their grid.
    """
    new, known = (1e3 * percentile(cells.latencies(cell), 50) for cell in (ALONE, KNOWN))
    together = percentile(cells.throughputs(TOGETHER), 50)
    grid = f"{points_per_side} x {points_per_side}"
    goals = (
        Goal("click on a new image, p50 ms", new, 30),
        Goal("click on a known image, p50 ms", known, 6),
        Goal(
            f"new images per second, {TOGETHER.concurrency} callers", together, 200, at_least=True
        ),
        Goal(f"all masks, {grid} points, ms", everything, 300),
        Goal("CPU time per new image, ms", cells.cpu_ms(ALONE), 25),
        Goal("CPU time per click on a known image, ms", cells.cpu_ms(KNOWN), 5),
    )
    return table(("", "", "goal", ""), [goal.row() for goal in goals])


def compare(
    repository: Path,
    without: tuple[str, Variant],
    effort: Effort,
    client: Executor,
    *,
    on_gpu: bool,
) -> str:
    """Return figures of the plan and of the same without a change, from one run of both services.

    Args:
        repository: the model repository.
        without: name and variant of the plan without the change.
        effort: the requests.
        client: process that sends the requests.
        on_gpu: as for `gpu_plans.write`.

    Raises:
        RuntimeError: the masks differ, or a service does not answer all requests.
    """
    CACHE.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=CACHE) as temporary, ExitStack() as stack:
        arms: dict[str, ServerArm] = {}
        for name, variant in ((WITH, gpu_plans.PLAN), without):
            folder = Path(temporary) / f"models-{len(arms)}"
            gpu_plans.write(repository, folder, variant, on_gpu=on_gpu)
            service = stack.enter_context(gpu_plans.serving(folder))
            arms[name] = ServerArm(service)
            arms[name].points_per_side = effort.points_per_side
        same_masks = compare_masks(arms)
        requests = {**effort.requests, Cell(OURS, EVERYTHING): 1}
        planned = {
            Cell(name, cell.workload, cell.concurrency): count
            for cell, count in requests.items()
            for name in arms
        }
        cells = closed_loop(arms, planned, client, effort.rounds)
    return f"{cells.as_table()}\n\n{same_masks}"
