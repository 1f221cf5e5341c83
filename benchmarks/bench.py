"""Comparison of the service with the raw model and its peers.

    python -m benchmarks.bench                  a quick run of about 3 minutes
    python -m benchmarks.bench --full           everything; writes the figures of docs/performance*.md
    python -m benchmarks.bench --only cached    one workload of the service, the raw model, the service without Triton

Measured with the official weights and, for the pages, also with the built-in ones: their encoder is many times smaller,
which makes overhead visible. The arms take turns within each round, so that other load on the machine affects all of
them alike; a ratio is the median of the rounds' ratios. All figures go to out/bench/.
"""

import argparse
import hashlib
from collections.abc import Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import interactive, parts, report, where
from benchmarks.arms import COLD, OURS, WITHOUT_TRITON, WORKLOADS, Arm, Ours, engines_of, json_request, start_arms
from benchmarks.engines import ONNX_RUNTIME
from benchmarks.figures import seconds
from benchmarks.goals import Extras, as_list, goals, summary
from benchmarks.load import Connection, load_client
from benchmarks.loops import Cell, Cells, closed_loop, memory_line, open_loops, open_table, plan
from benchmarks.photo import CLICK, photo
from benchmarks.raw import RawModel
from benchmarks.service import BUILTIN, OFFICIAL, Service, prepare, running

ROUNDS, ROUNDS_QUICK = 5, 3
STARTS = 3
"""Starts of the service, to measure the first request after each."""
WHERE, NEW_IMAGES, KNOWN_IMAGES, PARTS = OTHERS = ("where", "new-images", "known-images", "parts")
"""Measurements besides the loops."""


@dataclass
class Report:
    """Results so far, printed as soon as they are measured."""

    blocks: dict[str, str] = field(default_factory=dict)
    cells: dict[str, Cells] = field(default_factory=dict)
    """Closed loops by weights."""

    def show(self, name: str, text: str) -> None:
        """Print a block and keep it for the pages."""
        self.blocks[name] = text
        print(f"\n== {name} ==\n{text}", flush=True)


def raw_name(engines: tuple[str, str]) -> str:
    """Return the name of the raw model on these engines of encoder and decoder."""
    return f"raw, {' and '.join(dict.fromkeys(engines))}"


def first_request(service: Service) -> float:
    """Return the latency of the first click, on a new image, in seconds."""
    (request,) = Ours(service).clicks(COLD, 1)
    return seconds(lambda: Connection(service.port).ask(request))


def size_ratio(service: Service) -> float:
    """Return the ratio of an answer's size with an RLE mask to its size with a JSON mask; `photo()` must be known."""
    image_id = hashlib.sha256(photo()).hexdigest()
    rle, json = (
        json_request(image_id=image_id, pos_coords=[CLICK], mask_format=mask_format, segmented_image="none")
        for mask_format in ("rle", "json")
    )
    connection = Connection(service.port)
    return len(connection.ask(rle)[0]) / len(connection.ask(json)[0])


def select(planned: Mapping[Cell, int], only: str | None, raw: str) -> dict[Cell, int]:
    """Return the cells to measure: all, or one workload for the service, the raw model and without Triton."""
    arms = {OURS, WITHOUT_TRITON, raw}
    return {cell: count for cell, count in planned.items() if not only or (cell.workload == only and cell.arm in arms)}


def measure_loops(
    weights: str, client: Executor, result: Report, *, rounds: int, only: str | None = None, full: bool = False
) -> None:
    """Measure the loops with a set of weights, and, if `full`, the first requests."""
    repository, extras = prepare(weights), Extras()
    for _ in range(STARTS - 1 if full else 0):
        with running(repository) as service:
            extras.first_requests.append(first_request(service))
    with running(repository) as service:
        if not only:
            extras.first_requests.append(first_request(service))
        engines = engines_of(service)
        raw = raw_name(engines)
        models = {
            raw_name(each): RawModel(repository, *each)
            for each in dict.fromkeys([engines, (ONNX_RUNTIME, ONNX_RUNTIME)])
            if not only or each == engines
        }
        planned = select(plan(models, full), only, raw)
        with start_arms({cell.arm for cell in planned}, repository, service, engines) as servers:
            arms: dict[str, Arm] = {**models, **servers}
            cells = closed_loop(arms, planned, client, rounds)
            if full:
                extras.loops = open_loops(servers[OURS], cells, client)
            memory = memory_line(servers)
        if not only:
            extras.sizes.append(size_ratio(service))
            if weights == OFFICIAL:
                result.show("where", where.measure(service))
    result.cells[weights] = cells
    judged = as_list(goals(cells, raw, extras))
    if weights == BUILTIN:
        result.show("all-builtin", f"{cells.as_table()}\n\n{memory}")
        result.show("answer-builtin", summary(cells))
        result.show("goals-builtin", judged)
        return
    if not only:
        default = f"Default engine: encoder {engines[0]}, decoder {engines[1]}."
        result.show("answer", f"{summary(cells)}\n\n{default}")
    result.show("all", f"{cells.as_table()}\n\n{memory}")
    result.blocks["closed"] = f"{cells.as_table({OURS, WITHOUT_TRITON, raw})}\n\n{memory}"
    if extras.loops:
        result.show("open", open_table(extras.loops))
    result.show("goals", judged)


def measure_others(kinds: Collection[str], repository: Path, client: Executor, result: Report) -> None:
    """Measure single steps and kinds of clicks with the official weights."""
    with running(repository) as service:
        if WHERE in kinds:
            result.show("where", where.measure(service))
        raw = RawModel(repository, *engines_of(service))
        if NEW_IMAGES in kinds:
            result.show("cold", interactive.new_images(service, raw))
    if KNOWN_IMAGES in kinds:
        result.show("interactive", interactive.known_images(repository, raw, client))
    if PARTS in kinds:
        result.show("parts", parts.measure(raw))


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="everything, about 10 minutes, and write the pages")
    parser.add_argument("--only", choices=(*WORKLOADS, *OTHERS), help="one measurement; does not write the pages")
    parser.add_argument("--rounds", type=int, help=f"rounds of the closed loop ({ROUNDS_QUICK}, or {ROUNDS} if full)")
    given = parser.parse_args()
    if given.full and given.only:
        parser.error("expected --full or --only, got both")
    if given.full:
        report.check_blocks(report.BLOCKS)  # fail now, not after 10 minutes
    rounds = given.rounds or (ROUNDS if given.full else ROUNDS_QUICK)
    result = Report()
    result.show("machine", f"{report.machine()} {rounds} rounds.")
    with load_client() as client:
        if given.only in OTHERS:
            measure_others([given.only], prepare(OFFICIAL), client, result)
        else:
            measure_loops(OFFICIAL, client, result, rounds=rounds, only=given.only, full=given.full)
        if given.full:
            report.write_results("results", result.blocks, result.cells)
            measure_others([NEW_IMAGES, KNOWN_IMAGES, PARTS], prepare(OFFICIAL), client, result)
            measure_loops(BUILTIN, client, result, rounds=ROUNDS_QUICK)
    report.write_results("results", result.blocks, result.cells)
    if given.full:
        report.write_blocks({name: result.blocks[name] for name in report.BLOCKS})


if __name__ == "__main__":
    main()
