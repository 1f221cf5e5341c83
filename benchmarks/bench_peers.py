"""Comparison of the service with its alternatives, all with the official weights and on the CPU.

    python -m benchmarks.bench_peers .venv-peers

takes about 5 minutes and writes its part of docs/performance.md, out/bench/peers.md and out/bench/peers.json.
The peers are the official PyTorch predictor in one process, the same behind a minimal FastAPI, and the server of
isat-sam-backend, which returns an image's embedding and leaves decoding to its client. The masks are compared before
anything is measured. The arms take turns within each round; a ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tqdm import tqdm

from benchmarks import machine
from benchmarks.arms import OURS, Arm, engines_of
from benchmarks.closed import PAUSE_S, Cell, Cells, Setup, turn
from benchmarks.figures import Spread, ratios, short, spread, table
from benchmarks.goals import LOWER, Goal
from benchmarks.load import Connection, LoadClient
from benchmarks.objects import iou
from benchmarks.peer_arms import FASTAPI, ISAT, PREDICTOR, Predictor, masks_of, predicting, servers
from benchmarks.photo import CLICK, POINTS, photo
from benchmarks.report import OFFICIAL, OUTPUT, PAGE, PEERS, cells_as_json, with_blocks, write_json
from benchmarks.repository import prepare
from benchmarks.service import running
from benchmarks.workloads import CACHED, COLD, Clicks
from mobile_sam_onnx import sources
from mobile_sam_onnx.official import fetch_official
from utils.triton.machine import has_bf16

ROUNDS = 5
MIN_IOU = 0.98
"""Mean IoU with the official predictor's masks of the objects at `POINTS`."""
PLAN = {
    Cell(PREDICTOR, COLD): 3,
    Cell(PREDICTOR, CACHED): 15,
    Cell(FASTAPI, COLD): 3,
    Cell(FASTAPI, COLD, 8): 8,
    Cell(FASTAPI, CACHED): 15,
    Cell(FASTAPI, CACHED, 8): 40,
    Cell(ISAT, COLD): 2,
    Cell(OURS, COLD): 5,
    Cell(OURS, COLD, 8): 16,
    Cell(OURS, CACHED): 20,
    Cell(OURS, CACHED, 8): 48,
}
"""Requests per round."""
OVERHEAD = "our time includes HTTP, Triton and the PNG, the predictor's does not"
SHARED_CORES = "the same cores do all the work: eight callers wait for the model in both"
NOTES = (
    f"The {PREDICTOR} is called in its own process, without HTTP and PNG, by one caller. isat-sam-backend takes pixels "
    "and answers the embedding as JSON; its client decodes. So it has no cached click, and its cold click includes "
    "neither the image file nor the mask. Memory is resident memory, summed over an arm's processes; pages that they "
    "share count in each."
)


@dataclass(frozen=True)
class Results:
    """Measured figures of all arms."""

    about: str
    ious: Mapping[str, list[float]]
    """IoU of each mask with the official predictor's, by arm."""
    cells: Cells
    resident_bytes: Mapping[str, int]
    """Resident memory after all rounds, by arm."""
    bf16: bool
    """Whether the processor multiplies bfloat16 in hardware."""

    def block(self) -> str:
        """Return the Markdown for the page."""
        judged = goals_table(goals(self.cells, self.bf16))
        return "\n\n".join((self.about, self.arms_table(), NOTES, speeds_table(self.cells), judged))

    def arms_table(self) -> str:
        """Return a table with one row per arm."""
        rows = []
        for arm, size in self.resident_bytes.items():
            found = self.ious.get(arm)
            same = f"{statistics.mean(found):.3f} ({min(found):.3f})" if found else ""
            clicks = [
                spread([latency * 1e3 for latency in self.cells.medians(cell)]) if cell in self.cells.rounds else ""
                for cell in (Cell(arm, COLD), Cell(arm, CACHED))
            ]
            eight = [
                spread(self.cells.throughputs(cell)) if cell in self.cells.rounds else ""
                for cell in (Cell(arm, COLD, 8), Cell(arm, CACHED, 8))
            ]
            rows.append((arm, *clicks, *eight, size / 1e9, same))
        columns = ("cold click, ms", "cached click, ms", "cold, 8 callers, answers/s", "cached, 8 callers, answers/s")
        return table(("", *columns, "memory, GB", "IoU, mean (least)"), rows)

    def as_json(self) -> dict[str, Any]:
        """Return all results in a form that JSON can hold."""
        return {
            "machine": machine.machine(),
            "about": self.about,
            "iou": self.ious,
            "goals": [{**vars(goal), "met": goal.met} for goal in goals(self.cells, self.bf16)],
            "closed_loop": cells_as_json(self.cells),
            "resident_bytes": self.resident_bytes,
        }


def speed(cells: Cells, peer: Cell) -> Spread:
    """Return the service's speed-up over a peer: by latency for one caller, else by answers per second."""
    ours = Cell(OURS, peer.workload, peer.concurrency)
    if peer.concurrency > 1:
        return cells.throughput_ratio(ours, peer)
    return ratios(cells.medians(peer), cells.medians(ours))


def speeds_table(cells: Cells) -> str:
    """Return a table of the service's speed-up over each peer."""
    rows = [
        (cell.arm, f"{cell.workload}, {cell.concurrency} caller{'s' * (cell.concurrency > 1)}", speed(cells, cell))
        for cell in cells.rounds
        if cell.arm != OURS
    ]
    return table(("our speed in multiples of", "", "(quartiles)"), rows)


def goals(cells: Cells, bf16: bool) -> list[Goal]:
    """Return the goals against the official predictor, which serves eight callers behind FastAPI."""
    cold, cached = (
        Goal(f"{workload} click, times the speed of the {PREDICTOR}", LOWER, limit, speed(cells, peer), OVERHEAD)
        for workload, limit, peer in (
            (COLD, 4.5 if bf16 else 2.0, Cell(PREDICTOR, COLD)),
            (CACHED, 2.5, Cell(PREDICTOR, CACHED)),
        )
    )
    eight = (
        Goal(
            f"{workload}, 8 callers, times the answers/s of the {FASTAPI}",
            LOWER,
            4.0,
            speed(cells, Cell(FASTAPI, workload, 8)),
            SHARED_CORES,
        )
        for workload in (COLD, CACHED)
    )
    return [cold, cached, *eight]


def goals_table(found: list[Goal]) -> str:
    """Return a table of all goals, met and missed."""
    rows = [
        (goal.name, f"{goal.sense} {short(goal.limit)}", goal.figure, "met" if goal.met else f"missed: {goal.reason}")
        for goal in found
    ]
    return table(("", "goal", "measured (quartiles)", ""), rows)


def compare(arms: Mapping[str, Arm], predictor: Predictor, image: Path) -> dict[str, list[float]]:
    """Return the IoU of each server's masks with the official predictor's.

    Raises:
        RuntimeError: the mean IoU of an arm is below `MIN_IOU`; not checked for `ISAT`, whose client decodes.
    """
    expected = predictor.masks(image, POINTS)
    found: dict[str, list[float]] = {}
    for name, arm in arms.items():
        masks = masks_of(arm, image, POINTS, predictor)
        found[name] = [iou(mask, other) for mask, other in zip(masks, expected, strict=True)]
        mean = statistics.mean(found[name])
        print(f"{name}: IoU with the {PREDICTOR} {mean:.4f}, minimum of {len(masks)} masks {min(found[name]):.4f}")
        if mean < MIN_IOU and name != ISAT:
            raise RuntimeError(f"{name}: expected masks of mean IoU {MIN_IOU} or more, got {mean:.4f}")
    return found


def measure_cells(site: Setup, predictor: Predictor, image: Path) -> Cells:
    """Measure all cells in turn, round by round, after a short warm-up round."""
    cells = Cells()
    for number in tqdm(range(ROUNDS + 1), desc="peers", unit="round"):
        for cell, planned in PLAN.items():
            count = planned if number else cell.concurrency
            if cell.arm == PREDICTOR:
                time.sleep(PAUSE_S)
                outcome, cpu = predictor.turn(cell.workload, image, list(islice(cycle(POINTS), count)))
            else:
                arm = site.arms[cell.arm]
                if cell.workload == CACHED:  # FastAPI keeps only the latest image
                    Connection(arm.port).ask(arm.click(image.read_bytes(), CLICK))
                outcome, cpu = turn(site, cell, count)
            if number:
                cells.add(cell, outcome, cpu)
    return cells


def measure(python: Path) -> Results:
    """Start all arms, compare their masks, and measure.

    Args:
        python: Python of the peers' environment.

    Raises:
        RuntimeError: an arm does not start, or its masks differ.
        LoadError: an arm returns an error.
    """
    repository = prepare(OFFICIAL)
    checkpoint = fetch_official(sources.OFFICIAL, sources.OFFICIAL_PACKAGE, print)
    with (
        TemporaryDirectory() as folder,
        LoadClient() as client,
        predicting(python, checkpoint) as predictor,
        running(repository) as service,
        servers(python, checkpoint, service) as arms,
    ):
        image = Path(folder) / "photo.jpg"
        image.write_bytes(photo())
        encoder, decoder = engines_of(service, photo())
        ious = compare(arms, predictor, image)
        peers = predictor.about()
        cells = measure_cells(Setup(arms, client, Clicks()), predictor, image)
        resident = {PREDICTOR: predictor.resident_bytes()}
        resident |= {name: arm.server.resident_bytes() for name, arm in arms.items()}
    versions = ", ".join(f"{name} {version}" for name, version in peers["versions"].items())
    about = (
        f"{machine.line(machine.machine())} {ROUNDS} rounds. Ours: encoder {encoder}, decoder {decoder}. "
        f"Peers: {versions}; {peers['threads']} threads of PyTorch."
    )
    return Results(about, ious, cells, resident, has_bf16())


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("environment", type=Path, help="the peers' environment, created by `make env-peers`")
    arguments = parser.parse_args()
    python = arguments.environment.absolute() / "bin" / "python"
    if not python.exists():
        parser.error(f"{arguments.environment} is not an environment: run `make env-peers`")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # all arms run on the CPU
    results = measure(python)
    block = results.block()
    print(f"\n{block}\n\n{results.cells.as_table()}")
    write_json(OUTPUT / "peers.json", results.as_json())
    (OUTPUT / "peers.md").write_text(f"{block}\n\n{results.cells.as_table()}\n")
    PAGE.write_text(with_blocks(PAGE.read_text(), {PEERS: block}))
    print(f"wrote {PAGE}, {OUTPUT}/peers.md and peers.json")


if __name__ == "__main__":
    main()
