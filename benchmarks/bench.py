"""Comparison of the service with the raw model and its alternatives.

    python -m benchmarks.bench                  a quick run of about 3 minutes
    python -m benchmarks.bench --full           more rounds, and both weights
    python -m benchmarks.bench --only cached    one workload of the service, the raw model, and the
                                                service without Triton

A full run also measures the built-in weights: their encoder is many times smaller, which makes
overhead visible. The arms take turns within each round, so that other load on the machine affects
all of them alike; a ratio is the median of the rounds' ratios.
"""

import argparse
from collections.abc import Sequence
from concurrent.futures import Executor

from benchmarks.closed_loop import Cell, Cells, closed_loop, memory_line
from benchmarks.machine import describe_machine
from benchmarks.raw import RawModel
from benchmarks.servers import (
    CACHED,
    COLD,
    MIXED,
    OURS,
    PLAIN_BENTOML,
    SAME_ENGINE,
    WITHOUT_TRITON,
    WORKLOADS,
    Arm,
    engines_of,
    start_arms,
)
from benchmarks.service import BUILTIN, OFFICIAL, running
from benchmarks.stats import spread, table
from harness.load import client_process
from harness.repository import prepare

ROUNDS, ROUNDS_QUICK = 5, 3
SUMMARY, CLOSED_LOOP = "summary", "closed loop"
"""Titles of the tables."""
ROWS = {
    PLAIN_BENTOML: "BentoML alone, as in its documentation; ONNX Runtime f32",
    SAME_ENGINE: "this service, ONNX Runtime f32",
    OURS: "this service, default engine",
    WITHOUT_TRITON: "the same code and engine without Triton",
}
"""Rows of the summary table."""
COLUMNS = {
    "new images, 1 caller": (COLD, 1),
    "new images, 8 callers": (COLD, 8),
    "known image, 8 callers": (CACHED, 8),
}


def plan(raw: str) -> dict[Cell, int]:
    """Return the requests per round of each cell; `raw` is the name of the raw model's arm."""
    cells = {Cell(raw, COLD): 4, Cell(raw, CACHED): 20}
    cells |= {
        Cell(PLAIN_BENTOML, COLD): 2,
        Cell(PLAIN_BENTOML, COLD, 8): 8,
        Cell(PLAIN_BENTOML, CACHED, 8): 8,
    }
    cells |= {
        Cell(SAME_ENGINE, COLD): 3,
        Cell(SAME_ENGINE, COLD, 8): 10,
        Cell(SAME_ENGINE, CACHED, 8): 40,
    }
    for arm in (OURS, WITHOUT_TRITON):
        cells |= {
            Cell(arm, COLD): 4,
            Cell(arm, COLD, 8): 12,
            Cell(arm, CACHED): 20,
            Cell(arm, CACHED, 8): 40,
        }
        cells |= {Cell(arm, MIXED): 10, Cell(arm, MIXED, 8): 24}
    return cells


def summary(cells: Cells) -> str:
    """Return a table of answers per second with quartiles over the rounds, and Triton's ratio."""
    rows: list[Sequence[object]] = [
        (title, *(spread(cells.throughputs(Cell(arm, *load))) for load in COLUMNS.values()))
        for arm, title in ROWS.items()
    ]
    shares = (
        cells.throughput_ratio(Cell(OURS, *load), Cell(WITHOUT_TRITON, *load))
        for load in COLUMNS.values()
    )
    rows.append(("**ratio: with / without Triton**", *shares))
    return table(("answers per second (quartiles)", *COLUMNS), rows)


def measure(weights: str, client: Executor, rounds: int, only: str | None = None) -> dict[str, str]:
    """Measure with a set of weights; return the tables by their titles."""
    repository = prepare(weights)
    with running(repository) as service:
        engines = engines_of(service)
        raw = f"raw, {' and '.join(dict.fromkeys(engines))}"
        shown = {OURS, WITHOUT_TRITON, raw}
        planned = plan(raw)
        if only:
            cells_shown = [cell for cell in planned if cell.arm in shown]
            planned = {cell: planned[cell] for cell in cells_shown if cell.workload == only}
        names = {cell.arm for cell in planned}
        with start_arms(names, repository, service, engines) as servers:
            arms: dict[str, Arm] = {raw: RawModel(repository, *engines), **servers}
            cells = closed_loop(arms, planned, client, rounds)
            memory = memory_line(servers)
    if only:
        return {CLOSED_LOOP: cells.as_table()}
    default = f"Default engine: encoder {engines[0]}, decoder {engines[1]}."
    return {
        SUMMARY: f"{summary(cells)}\n\n{default}",
        CLOSED_LOOP: f"{cells.as_table(shown)}\n\n{memory}",
    }


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="everything, about 10 minutes")
    parser.add_argument("--only", choices=WORKLOADS, help="one workload")
    arguments = parser.parse_args()
    if arguments.full and arguments.only:
        parser.error("expected --full or --only, got both")
    rounds = ROUNDS if arguments.full else ROUNDS_QUICK
    print(f"{describe_machine()} {rounds} rounds.\n", flush=True)
    with client_process() as client:
        for weights in (OFFICIAL, BUILTIN) if arguments.full else (OFFICIAL,):
            for title, text in measure(weights, client, rounds, arguments.only).items():
                print(f"== {title}, {weights} weights ==\n{text}\n", flush=True)


if __name__ == "__main__":
    main()
