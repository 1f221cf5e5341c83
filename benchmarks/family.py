"""Times and memory of the SAM family beside the authors' PyTorch code.

    python -m benchmarks.family PYTHON [MEMBER ...]

PYTHON is the interpreter of `make env-family`. Each member gets random weights of full size, and each engine a process,
on `THREADS` cores. The processes take turns: in each round an image, then `CLICKS` clicks on it. Times are the shortest
of all rounds after an uncounted one, as others may use the machine; memory is the highest in those rounds. "Load" is
the average of a minute at the end of a member's rounds: about 2 on a machine that does nothing else.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from subprocess import run
from tempfile import TemporaryDirectory

from tqdm import tqdm

from benchmarks.engines import OPENVINO_BF16, OPENVINO_F32
from benchmarks.members import MEMBERS
from benchmarks.raw import descriptor_of
from benchmarks.service import CACHE
from benchmarks.stats import seconds, table
from benchmarks.workers import CLICK, ENCODE, Worker
from utils.triton.machine import has_bf16

THREADS = 2
CLICKS = 5
COLUMNS = ("weights", "engine", "image, ms", "click, ms", "memory, GB")
COMPARED = ("PyTorch: image, ms", "click, ms", "memory, GB", "image and click: PyTorch / engine")
OTHERS = ("ONNX files, GB", "export, s", "load")


def measured(workers: Sequence[Worker], rounds: int, title: str) -> list[tuple[float, float, float]]:
    """Return for each process the time of an image and of a click, in milliseconds, and its memory in GB."""
    times: list[dict[str, list[float]]] = [{ENCODE: [], CLICK: []} for _ in workers]
    for number in tqdm(range(1 + rounds), desc=title, unit="round"):
        for worker, found in zip(workers, times, strict=True):
            if number == 1:
                worker.forget_peak()
            for work in (ENCODE, *[CLICK] * CLICKS):
                taken = worker.seconds(work)
                found[work] += [1e3 * taken] if number else []
    return [
        (min(found[ENCODE]), min(found[CLICK]), worker.peak_bytes() / 1e9)
        for worker, found in zip(workers, times, strict=True)
    ]


def rows(member: str, rounds: int, python: str) -> list[list[object]]:
    """Return the rows of a member: one for each engine that its descriptor allows and this processor has."""
    CACHE.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=CACHE) as folder, ExitStack() as stack:
        weights, repository = Path(folder, f"{member}.pt"), Path(folder, "model_repository")
        authors = stack.enter_context(Worker([python, "-Wignore", "-m", "benchmarks.authors", member, str(weights)]))
        authors.seconds(ENCODE)  # it has written the weights
        export = [sys.executable, "-m", "sam_onnx", "--weights", str(weights), "--output", str(repository)]
        export_s = seconds(partial(run, export, check=True, capture_output=True))
        weights.unlink()
        size = sum(path.stat().st_size for path in repository.glob("*/1/model.onnx*")) / 1e9
        bf16 = has_bf16() and "openvino-bf16" in descriptor_of(repository).engines
        engines = [OPENVINO_F32, *[OPENVINO_BF16] * bf16]
        commands = [[sys.executable, "-m", "benchmarks.raw", str(repository), each, OPENVINO_F32] for each in engines]
        ours = [stack.enter_context(Worker(command)) for command in commands]
        pytorch, *found = measured([authors, *ours], rounds, member)
        load = os.getloadavg()[0]
    return [
        [member, engine, *figures, *pytorch, sum(pytorch[:2]) / sum(figures[:2]), size, export_s, load]
        for engine, figures in zip(engines, found, strict=True)
    ]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", help="interpreter of the authors' code")
    parser.add_argument("members", nargs="*", default=[*MEMBERS], metavar="member", help=", ".join(MEMBERS))
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    options = parser.parse_args()
    if unknown := sorted({*options.members} - {*MEMBERS}):
        parser.error(f"expected members of {', '.join(MEMBERS)}, got {', '.join(unknown)}")
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    found = [row for member in options.members for row in rows(member, options.rounds, options.python)]
    print(table((*COLUMNS, *COMPARED, *OTHERS), found))


if __name__ == "__main__":
    main()
