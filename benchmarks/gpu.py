"""Check of the service on an NVIDIA GPU: `make gpu-check`

It runs the end-to-end tests, compares the masks with those of float32 on the CPU, and measures.
`python -m benchmarks.gpu --provider cpu` is for machines without a GPU: ONNX Runtime's CPU provider
runs the plan for a GPU.
"""

import argparse
import hashlib
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path

import pynvml

from benchmarks import gate
from benchmarks.closed_loop import Cell, Cells, closed_loop, memory_line
from benchmarks.engines import CUDA, ONNX_RUNTIME, OPENVINO_F32
from benchmarks.machine import describe_machine
from benchmarks.objects import LabelledObject, read_picture
from benchmarks.photo import POINTS, photo
from benchmarks.servers import CACHED, COLD, OURS, ServerArm, engines_of
from benchmarks.service import OFFICIAL, running
from benchmarks.stats import percentile, seconds, table
from harness import ROOT
from harness.load import client_process, json_request
from harness.repository import prepare
from orchestrator.masks import area_and_box
from utils.settings import Settings
from utils.triton.machine import this_machine
from utils.triton.plan import MOBILE_SAM_ENGINES, make_plan
from utils.triton.repository import CONFIG, export

ALONE, KNOWN, TOGETHER = Cell(OURS, COLD), Cell(OURS, CACHED), Cell(OURS, COLD, 16)
REQUESTS = {ALONE: 10, KNOWN: 30, TOGETHER: 80}
"""Requests per round."""
ROUNDS = 5
POINTS_PER_SIDE = 32
MIN_WORKERS, CORES_PER_WORKER = 3, 4
"""Parallel processes of the tests: at least as many as in `make test`, and one for this many
cores."""
IMITATED_GPU_BYTES = 16 * 10**9
"""Memory of the GPU that the plan on the CPU provider is for: it takes that of this machine."""
NO_GPU = "ONNX Runtime's CPU provider ran the plan for a GPU: these are no figures of a GPU."


def devices() -> str:
    """Return the GPUs, their memory in use, and the driver; raise `NVMLError` without a driver."""
    pynvml.nvmlInit()
    gpus = [
        pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
    ]
    used = sum(pynvml.nvmlDeviceGetMemoryInfo(gpu).used for gpu in gpus) / 1e9
    names, driver = (
        ", ".join(map(pynvml.nvmlDeviceGetName, gpus)),
        pynvml.nvmlSystemGetDriverVersion(),
    )
    return f"{names}, {used:.2f} GB in use, driver {driver}."


def with_cpu_provider(repository: Path, folder: Path) -> Path:
    """Write a copy of a model repository with the plan for a GPU, but with instances on the CPU;
    return the folder.
    """
    export(
        repository,
        make_plan(
            replace(this_machine(), gpu_memory_bytes=(IMITATED_GPU_BYTES,)),
            MOBILE_SAM_ENGINES,
            Settings(),
        ),
        folder,
    )
    for file in folder.glob(f"*/{CONFIG}"):
        file.write_text(
            file.read_text().replace("KIND_GPU", "KIND_CPU").replace(CUDA, ONNX_RUNTIME)
        )
    return folder


def photo_objects(arm: ServerArm, folder: Path) -> list[LabelledObject]:
    """Return the objects of the measurements' photo, outlined by the service's masks."""
    file = folder / "photo.jpg"
    file.write_bytes(photo())
    picture, masks = read_picture(file), arm.masks(POINTS)
    objects = zip(masks, POINTS, strict=True)
    return [
        LabelledObject(file, picture, mask, point, area_and_box(mask)[1]) for mask, point in objects
    ]


def everything_ms(arm: ServerArm) -> float:
    """Return the median time to find all masks of the known photo; raise RuntimeError if they
    are not found.
    """
    fields = {"image_id": hashlib.sha256(photo()).hexdigest(), "points_per_side": POINTS_PER_SIDE}
    request = json_request({**fields, "progress": True}, "/everything")  # has no time limit

    def find() -> None:
        *_, last = arm.server.send(request).iter_lines()
        if b'"result"' not in last:
            raise RuntimeError(f"expected all masks, got {last!r}")

    return 1e3 * statistics.median(seconds(find) for _ in range(ROUNDS))


def goals_table(cells: Cells, everything: float) -> str:
    """Return a table of the figures that have goals."""
    new, known = (1e3 * percentile(cells.latencies(cell), 50) for cell in (ALONE, KNOWN))
    together = percentile(cells.throughputs(TOGETHER), 50)
    rows = [
        ("click on a new image, p50 ms", new, "<= 25", new <= 25),
        ("click on a known image, p50 ms", known, "<= 8", known <= 8),
        (
            f"new images per second, {TOGETHER.concurrency} callers",
            together,
            ">= 100",
            together >= 100,
        ),
        (
            f"all masks, {POINTS_PER_SIDE} x {POINTS_PER_SIDE} points, ms",
            everything,
            "<= 120",
            everything <= 120,
        ),
    ]
    return table(("", "", "goal", ""), [(*row, "met" if met else "missed") for *row, met in rows])


def check(weights: str, client: Executor, *, on_gpu: bool) -> tuple[str, bool]:
    """Measure with a set of weights; return the tables, and whether the masks are kept.

    Raises:
        RuntimeError: the service runs on another engine, or does not answer all requests.
    """
    engine, pair = (CUDA, gate.ON_GPU) if on_gpu else (ONNX_RUNTIME, (OPENVINO_F32, OPENVINO_F32))
    repository = prepare(weights)
    with tempfile.TemporaryDirectory() as temporary:
        served = (
            repository
            if on_gpu
            else with_cpu_provider(repository, Path(temporary, "model_repository"))
        )
        # With `poll`, the service does not replace the plan.
        settings = {} if on_gpu else {"MOBILE_SAM_MODEL_CONTROL_MODE": "poll"}
        with running(served, **settings) as service:
            if (engines := engines_of(service)) != (engine, engine):
                raise RuntimeError(
                    f"expected encoder and decoder on {engine}, got {' and '.join(engines)}"
                )
            arm = ServerArm(service)
            objects = photo_objects(arm, Path(temporary))
            cells = closed_loop({OURS: arm}, REQUESTS, client, ROUNDS)
            goals, memory = goals_table(cells, everything_ms(arm)), memory_line({OURS: arm})
            gpus = devices() if on_gpu else NO_GPU
        rows, keeping = gate.compare(weights, repository, objects, (gate.BASELINE, pair))
    times, _ = gate.time_graphs(repository, "graphs")
    about = f"{gpus} {describe_machine()} {ROUNDS} rounds. {memory}"
    masks = table(("weights", "encoder", "decoder", *gate.COLUMNS), rows)
    return "\n\n".join((about, goals, cells.as_table(), times, masks, gate.LEGEND)), pair in keeping


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--provider", choices=("cuda", "cpu"), default="cuda", help="of ONNX Runtime; default: cuda"
    )
    on_gpu = parser.parse_args().provider == "cuda"
    if on_gpu and not this_machine().gpu_memory_bytes:
        parser.error(
            "no NVIDIA GPU with its driver, or no onnxruntime-gpu: `make gpu-check PROVIDER=cpu`"
            " needs no GPU"
        )
    workers = max(MIN_WORKERS, this_machine().cores // CORES_PER_WORKER)
    tests = [
        "-m",
        "pytest",
        "-n",
        str(workers),
        "--dist",
        "loadfile",
        "-m",
        "e2e and not slow",
        "tests/e2e",
    ]
    failed = subprocess.run([sys.executable, *tests], cwd=ROOT, check=False).returncode
    with client_process() as client:
        text, keeps = check(OFFICIAL, client, on_gpu=on_gpu)
    text += (
        f"\n\nMasks kept: {'yes' if keeps else 'no'}. End-to-end tests:"
        f" {'failed' if failed else 'passed'}."
    )
    print(f"\n{text}")
    sys.exit(bool(failed) or not keeps)


if __name__ == "__main__":
    main()
