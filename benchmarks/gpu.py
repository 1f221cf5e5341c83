"""Check of the service on an NVIDIA GPU: `make gpu-check`

It runs the end-to-end tests, compares the masks with those of float32 on the CPU, measures, and writes
docs/performance-gpu.md. For machines without a GPU,

    python -m benchmarks.gpu --provider cpu

does the same on ONNX Runtime's CPU provider, with the plan for a GPU, and only prints.
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

from benchmarks import gate, report
from benchmarks.arms import CACHED, COLD, OURS, ServerArm, engines_of
from benchmarks.engines import CUDA, ONNX_RUNTIME, OPENVINO_F32
from benchmarks.figures import percentile, seconds, table
from benchmarks.loops import Cell, Cells, closed_loop, memory_line
from benchmarks.objects import LabelledObject, read_picture
from benchmarks.photo import POINTS, photo
from benchmarks.service import CACHE, OFFICIAL, running
from harness import ROOT
from harness.load import client_process, json_request
from harness.repository import prepare
from orchestrator.masks import area_and_box
from utils.settings import Settings
from utils.triton.machine import this_machine
from utils.triton.plan import MOBILE_SAM_ENGINES, make_plan
from utils.triton.repository import CONFIG, export

PAGE, BLOCK = ROOT / "docs" / "performance-gpu.md", "gpu"
CUDA_PROVIDER, CPU_PROVIDER = PROVIDERS = ("cuda", "cpu")
ALONE, KNOWN, TOGETHER = Cell(OURS, COLD), Cell(OURS, CACHED), Cell(OURS, COLD, 16)
REQUESTS = {ALONE: 20, KNOWN: 50, TOGETHER: 160}
"""Requests per round."""
ROUNDS = 5
POINTS_PER_SIDE = 32
TESTS = ("-m", "pytest", "-m", "e2e and not slow", "tests/e2e")
RUNS = ("nv_inference_exec_count", "mobile_sam_encoder")
NO_GPU = "ONNX Runtime's CPU provider ran the plan for a GPU: these are no figures of a GPU."


def devices() -> str:
    """Return the GPUs, the memory in use on them, and the driver; raise `NVMLError` without a driver."""
    pynvml.nvmlInit()
    texts = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        texts.append(
            f"{pynvml.nvmlDeviceGetName(handle)}, {memory.used / 1e9:.2f} of {memory.total / 1e9:.0f} GB in use"
        )
    major, minor = divmod(pynvml.nvmlSystemGetCudaDriverVersion_v2(), 1000)
    return f"{'; '.join(texts)}; driver {pynvml.nvmlSystemGetDriverVersion()} for CUDA {major}.{minor // 10}"


def with_cpu_provider(repository: Path, folder: Path) -> Path:
    """Write a copy of a model repository with the plan for a GPU, but with instances on the CPU; return the folder."""
    plan = make_plan(replace(this_machine(), gpus=1), MOBILE_SAM_ENGINES, Settings())
    export(repository, plan, CACHE, folder)
    for file in folder.glob(f"*/{CONFIG}"):
        file.write_text(file.read_text().replace("KIND_GPU", "KIND_CPU").replace(CUDA, ONNX_RUNTIME))
    return folder


def photo_objects(arm: ServerArm, folder: Path) -> list[LabelledObject]:
    """Return the objects of the measurements' photo, outlined by the service's masks."""
    file = folder / "photo.jpg"
    file.write_bytes(photo())
    objects = []
    for point, mask in zip(POINTS, arm.masks(POINTS), strict=True):
        x0, y0, x1, y1 = area_and_box(mask)[1]
        objects.append(LabelledObject(file, read_picture(file), mask, point, (x0, y0, x1, y1)))
    return objects


def everything_ms(arm: ServerArm) -> float:
    """Return the median time to find all masks of the known photo."""
    fields = {"image_id": hashlib.sha256(photo()).hexdigest()}
    request = json_request(fields, f"/everything?points_per_side={POINTS_PER_SIDE}")
    return 1e3 * statistics.median(seconds(arm.server.send(request).raise_for_status) for _ in range(ROUNDS))


def goals_table(cells: Cells, everything: float) -> str:
    """Return a table of the figures that have goals."""
    new, known = (1e3 * percentile(cells.latencies(cell), 50) for cell in (ALONE, KNOWN))
    together = percentile(cells.throughputs(TOGETHER), 50)
    rows = [
        ("click on a new image, p50 ms", new, "<= 25", new <= 25),
        ("click on a known image, p50 ms", known, "<= 8", known <= 8),
        (f"new images per second, {TOGETHER.concurrency} callers", together, ">= 100", together >= 100),
        (f"all masks, {POINTS_PER_SIDE} x {POINTS_PER_SIDE} points, ms", everything, "<= 120", everything <= 120),
    ]
    return table(("", "", "goal", ""), [(*row, "met" if met else "missed") for *row, met in rows])


def check(weights: str, provider: str, client: Executor) -> tuple[str, bool]:
    """Measure with a set of weights; return the text for the page, and whether masks are kept.

    Raises:
        RuntimeError: the service runs on another engine, or does not answer all requests.
    """
    engine = CUDA if provider == CUDA_PROVIDER else ONNX_RUNTIME
    pair = gate.ON_GPU if provider == CUDA_PROVIDER else (OPENVINO_F32, OPENVINO_F32)
    repository = prepare(weights)
    with tempfile.TemporaryDirectory() as temporary:
        served, settings = repository, dict[str, str]()
        if provider == CPU_PROVIDER:
            served = with_cpu_provider(repository, Path(temporary, "model_repository"))
            settings = {"MOBILE_SAM_MODEL_CONTROL_MODE": "poll"}  # the service does not replace the plan
        with running(served, **settings) as service:
            if (found := engines_of(service)) != (engine, engine):
                raise RuntimeError(f"expected encoder and decoder on {engine}, got {' and '.join(found)}")
            arm = ServerArm(service)
            objects = photo_objects(arm, Path(temporary))
            before = service.embeddings()["encoded"], service.metric(*RUNS)
            cells = closed_loop({OURS: arm}, REQUESTS, client, ROUNDS)
            images, runs = service.embeddings()["encoded"] - before[0], service.metric(*RUNS) - before[1]
            goals, memory = goals_table(cells, everything_ms(arm)), memory_line({OURS: arm})
            gpus = f"{devices()}." if provider == CUDA_PROVIDER else NO_GPU
        rows, keeping = gate.compare(weights, repository, objects, (gate.BASELINE, pair))
    times, _ = gate.time_graphs(repository, "graphs")
    about = f"{gpus} {report.machine()} {ROUNDS} rounds. The encoder ran {images / runs:.2f} images at once. {memory}"
    masks = table(("weights", "encoder", "decoder", *gate.COLUMNS), rows)
    return "\n\n".join((about, goals, cells.as_table(), times, masks, gate.LEGEND)), pair in keeping


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--provider", choices=PROVIDERS, default=CUDA_PROVIDER, help="of ONNX Runtime; default: cuda")
    provider = parser.parse_args().provider
    if provider == CUDA_PROVIDER and not this_machine().gpus:
        parser.error(
            "no NVIDIA GPU with its driver, or no onnxruntime-gpu: `make gpu-check PROVIDER=cpu` needs neither"
        )
    tests = subprocess.run([sys.executable, *TESTS], cwd=ROOT, check=False).returncode
    with client_process() as client:
        text, kept = check(OFFICIAL, provider, client)
    text += f"\n\nMasks kept: {'yes' if kept else 'no'}. End-to-end tests: {'failed' if tests else 'passed'}."
    print(f"\n{text}")
    if provider == CUDA_PROVIDER:
        report.write_blocks({BLOCK: text}, [PAGE])
    sys.exit(bool(tests) or not kept)


if __name__ == "__main__":
    main()
