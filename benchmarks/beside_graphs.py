"""CPU time of a request beside the graphs, with the plan for a GPU; and before, with networks that
leave the work on pixels to the orchestrator, or of another revision with its plan.

Both services run at once and take turns, with stand-ins for the networks (`benchmarks.stand_ins`):
what is left is the work that a machine with a GPU does on its cores. It includes the copies of the
stand-ins' answers, but not the time that a GPU's driver takes.
"""

import io
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from benchmarks import gpu_plans, stand_ins
from benchmarks.closed_loop import Cell, Cells, closed_loop
from benchmarks.photo import CLICK, photo
from benchmarks.recording import Recording, record
from benchmarks.servers import CACHED, COLD, EVERYTHING, ServerArm, Turn, compare_masks
from benchmarks.service import CACHE
from benchmarks.stats import ratios, table
from harness import ROOT
from harness.repository import prepare
from harness.server import cpu_seconds
from orchestrator import tensors

BEFORE, AFTER = "before", "after"
WRITE_PLAN = """
import sys
from pathlib import Path
from harness.repository import prepare

repository, folder = prepare(sys.argv[1]), Path(sys.argv[2])
try:
    from benchmarks.gpu_plans import write
except ImportError:  # revisions before the networks for GPUs
    from benchmarks.gpu import with_cpu_provider
    with_cpu_provider(repository, folder)
else:
    write(repository, folder, on_gpu=False)
"""
"""Program of a baseline: writes a model repository with its plan for a GPU, on the CPU."""
ROWS = {COLD: "new image", CACHED: "known image", EVERYTHING: "all masks"}
GOALS = {COLD: 0.5, EVERYTHING: 0.2}
"""Largest ratio of the CPU times."""
SMALL_CACHE = {"MOBILE_SAM_EMBEDDING_CACHE_BYTES": "100000000"}
"""Setting for a cache of about 35 images, which is soon full: an image takes the space of another,
as in a service that has run for long. New files take pages of memory that a virtual machine may
have to get from its host first, which took 6 ms an image on one of them."""
HEADER = ("", f"CPU ms {BEFORE}", AFTER, "ratio", "of rounds (quartiles)", "goal", "")


@dataclass(frozen=True)
class Load:
    """Requests of the measurement."""

    requests: Mapping[str, int]
    """Requests of a round by workload."""
    rounds: int
    points_per_side: int
    """Points along each side of the grid of `EVERYTHING`."""
    idle_s: float
    """Time without requests in which the CPU time of idle services is measured."""


FULL = Load({COLD: 10, CACHED: 40, EVERYTHING: 1}, rounds=8, points_per_side=32, idle_s=30.0)


def measure(weights: str, client: Executor, baseline: Path | None = None, load: Load = FULL) -> str:
    """Return the table, and what its figures are.

    Args:
        weights: weights whose networks have stand-ins.
        client: process that sends the requests.
        baseline: checkout of the revision before; None: this one without the plan's changes.
        load: the requests.

    Raises:
        RuntimeError: a service does not answer all requests, or encodes more or fewer images than
            are new.
    """
    picture = np.asarray(Image.open(io.BytesIO(photo())).convert("RGB"))
    repository = prepare(weights)
    recording = record(repository, picture, CLICK)
    CACHE.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=CACHE) as temporary, ExitStack() as stack:
        before, after = (Path(temporary) / name for name in (BEFORE, AFTER))
        if baseline:
            write_plan(baseline, weights, before)
        else:
            gpu_plans.write(repository, before, gpu_plans.BEFORE, on_gpu=False)
        gpu_plans.write(repository, after, on_gpu=False)
        arms = {}
        for folder, root in ((before, baseline or ROOT), (after, ROOT)):
            stand_ins.install(folder, recording)
            service = gpu_plans.serving(folder, root, **SMALL_CACHE)
            arms[folder.name] = ServerArm(stack.enter_context(service))
            arms[folder.name].points_per_side = load.points_per_side
        same_masks = compare_masks(arms)  # the photo is a known image from here on
        workloads = load.requests.items()
        planned = {Cell(arm, workload): count for workload, count in workloads for arm in arms}
        cells = closed_loop(arms, planned, client, load.rounds)
        idle = idle_shares(arms, load.idle_s)
    return f"{as_table(cells, idle)}\n\n{legend(load, idle)} {of_masks(recording)} {same_masks}"


def write_plan(checkout: Path, weights: str, folder: Path) -> None:
    """Write a model repository with the plan for a GPU, as another checkout makes it."""
    command = [sys.executable, "-c", WRITE_PLAN, weights, str(folder)]
    subprocess.run(command, cwd=checkout, check=True)


def idle_shares(arms: Mapping[str, ServerArm], duration_s: float) -> dict[str, float]:
    """Return the CPU seconds that each server uses in a second without requests: for health checks,
    metrics, and a look at its files.
    """
    before = {name: cpu_seconds(arm.server.family()) for name, arm in arms.items()}
    time.sleep(duration_s)
    return {
        name: (cpu_seconds(arm.server.family()) - before[name]) / duration_s
        for name, arm in arms.items()
    }


def request_cpu_ms(turn: Turn, idle_share: float) -> float:
    """Return the CPU time of a request without that of an idle server, the mean over a turn."""
    return 1e3 * (turn.cpu_seconds - idle_share * turn.seconds) / len(turn.latencies)


def as_table(cells: Cells, idle: Mapping[str, float]) -> str:
    """Return a table with a row for each workload."""
    rows = []
    for workload, title in ROWS.items():
        times = {
            arm: [request_cpu_ms(turn, share) for turn in cells.rounds[Cell(arm, workload)]]
            for arm, share in idle.items()
        }
        before, after = (float(np.mean(times[arm])) for arm in (BEFORE, AFTER))
        ratio = after / before
        goal = GOALS.get(workload)
        judged = ("", "") if goal is None else (f"<= {goal}", met(is_met=ratio <= goal))
        rows.append((title, before, after, ratio, ratios(times[AFTER], times[BEFORE]), *judged))
    return table(HEADER, rows)


def met(*, is_met: bool) -> str:
    """Return a goal's word."""
    return "met" if is_met else "missed"


def legend(load: Load, idle: Mapping[str, float]) -> str:
    """Return what the figures of the table are."""
    counts = ", ".join(f"{count} {ROWS[workload]}" for workload, count in load.requests.items())
    shares = ", ".join(f"{1e3 * share:.1f} ms {name}" for name, share in idle.items())
    return (
        "CPU time of all of a service's processes per request, the mean over"
        f" {load.rounds} rounds of one caller's requests ({counts}; all masks of a new image with"
        f" {load.points_per_side} x {load.points_per_side} points), without that of an idle service"
        f" in the same time ({shares} per second). Stand-ins answer for the networks."
    )


def of_masks(recording: Recording) -> str:
    """Return how many masks the stand-ins answer for a grid, and how large they are."""
    points = len(recording.low_res_masks) - 1
    areas = recording.grid_masks[tensors.AREAS.name]
    height, row_bytes = recording.grid_masks[tensors.MASK_BITS.name].shape[1:]
    share = areas.mean() / (height * row_bytes * 8) if len(areas) else 0.0
    return (
        f"For {points} points they answer {len(areas)} masks that reach the thresholds, with"
        f" {share:.0%} of the image's pixels on average."
    )
