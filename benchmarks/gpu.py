"""Check of the service on an NVIDIA GPU, in steps: `make gpu-check`

    smoke     the example with a network of its own, and one click
    parity    masks against those of the official predictor
    gate      masks of encoder and decoder with CUDA against float32 on the CPU
    figures   latencies, throughput and CPU time, with their goals
    graphs    times of the graphs alone
    jpeg      JPEG by nvImageCodec beside libjpeg-turbo, where it is installed
    changes   figures with and without each of the plan's changes for GPUs
    tests     all end-to-end tests; takes longest
    beside    CPU time beside the graphs, before and after; with the CPU provider only
    stages    mean times of a request's stages; with `--stages` only

Each step prints what it finds at once, and keeps it in a file. A later call skips the steps that
have passed. `python -m benchmarks.gpu --provider cpu` is for machines without a GPU: ONNX Runtime's
CPU provider runs the plan for a GPU, and there are few requests.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import pynvml

from benchmarks import (
    beside_graphs,
    gate,
    gpu_figures,
    gpu_graphs,
    gpu_jpeg,
    gpu_plans,
    stage_times,
)
from benchmarks.closed_loop import closed_loop, memory_line
from benchmarks.compare import checked_out
from benchmarks.engines import CUDA, ONNX_RUNTIME, OPENVINO_F32
from benchmarks.gpu_figures import FEW, FULL, Effort, everything_ms, goals_table
from benchmarks.machine import describe_machine
from benchmarks.objects import LabelledObject, read_picture
from benchmarks.photo import POINTS, photo
from benchmarks.servers import CACHED, COLD, OURS, ServerArm, engines_of
from benchmarks.service import CACHE, OFFICIAL, running
from benchmarks.stats import seconds, table
from benchmarks.steps import Report, Step, run_step, run_steps
from harness import ROOT, Server
from harness.load import client_process
from harness.repository import prepare
from orchestrator.masks import area_and_box
from tests.e2e.test_official_parity import test_compat_predictor_matches_the_official_predictor
from utils.triton.machine import this_machine

MIN_WORKERS, CORES_PER_WORKER = 3, 4
"""Parallel processes of the tests: at least as many as in `make test`, and one for this many
cores."""
NO_GPU = "ONNX Runtime's CPU provider ran the plan for a GPU: these are no figures of a GPU."
CHANGES = {
    "without work on pixels": gpu_plans.WITHOUT_PIXELS,
    "without own decoders": gpu_plans.WITHOUT_OWN_DECODERS,
    "known images asked first": gpu_plans.ASKING_FIRST,
}
"""What `changes` compares the plan with."""


@dataclass
class Check:
    """The steps for a set of weights."""

    weights: str
    client: Executor
    """Process that sends the requests."""
    on_gpu: bool
    """False for the plan on ONNX Runtime's CPU provider."""
    effort: Effort
    baseline: Path | None = None
    """Checkout that `beside` compares this one with."""

    def steps(self) -> dict[str, Step]:
        """Return all steps by name, in order."""
        steps: dict[str, Step] = {
            "smoke": self.smoke,
            "parity": self.parity,
            "gate": self.gate,
            "figures": self.figures,
            "graphs": self.graphs,
            "jpeg": self.jpeg,
            "changes": self.changes,
            "tests": self.tests,
        }
        if not self.on_gpu:
            steps["beside"] = self.beside
        return steps | {"stages": self.stages}

    @cached_property
    def repository(self) -> Path:
        """The model repository with the weights."""
        return prepare(self.weights)

    @property
    def engine(self) -> str:
        """The engine of the networks."""
        return CUDA if self.on_gpu else ONNX_RUNTIME

    @contextmanager
    def service(self) -> Iterator[Server]:
        """Run the service with the plan for a GPU.

        Raises:
            RuntimeError: it runs on another engine.
        """
        CACHE.mkdir(exist_ok=True)
        with TemporaryDirectory(dir=CACHE) as temporary:
            if self.on_gpu:
                starting = running(self.repository)
            else:
                folder = Path(temporary) / "models"
                gpu_plans.write(self.repository, folder, on_gpu=False)
                starting = gpu_plans.serving(folder)
            with starting as service:
                engines = engines_of(service)
                if engines != (self.engine, self.engine):
                    expected = f"expected encoder and decoder on {self.engine}"
                    raise RuntimeError(f"{expected}, got {' and '.join(engines)}")
                yield service

    def smoke(self, report: Report) -> bool:
        """Run the tests of the example with a network of its own, and click once."""
        passes = run_tests(report, "tests/e2e/examples/test_classification.py")
        with self.service() as service:
            arm = ServerArm(service)
            masks = []
            click_s = seconds(lambda: masks.extend(arm.masks(POINTS[:1])))
            area, _ = area_and_box(masks[0])
        report(f"A click on a new image: {1e3 * click_s:.0f} ms, a mask of {area} pixels.")
        return passes and area > 0

    def parity(self, report: Report) -> bool:
        """Run the end-to-end test of the masks of the official predictor, on the plan."""
        with self.service() as service:
            test_compat_predictor_matches_the_official_predictor(
                service, lambda name, value: report(f"{name}: {value}")
            )
        return True

    def gate(self, report: Report) -> bool:
        """Compare masks with those of float32 on the CPU; return whether they are kept."""
        pair = gate.ON_GPU if self.on_gpu else (OPENVINO_F32, OPENVINO_F32)
        with TemporaryDirectory() as folder:
            with self.service() as service:
                objects = photo_objects(ServerArm(service), Path(folder))
            rows, keeping = gate.compare(
                self.weights, self.repository, objects, (gate.BASELINE, pair)
            )
        report(table(("weights", "encoder", "decoder", *gate.COLUMNS), rows))
        report(f"{gate.LEGEND}\n\nMasks kept: {'yes' if pair in keeping else 'no'}.")
        return pair in keeping

    def figures(self, report: Report) -> bool:
        """Measure latencies, throughput, CPU time and memory; a missed goal is no failure."""
        with self.service() as service:
            arm = ServerArm(service)
            arm.masks(POINTS[:1])  # the photo is a known image from here on
            cells = closed_loop({OURS: arm}, self.effort.requests, self.client, self.effort.rounds)
            report(cells.as_table())
            everything = everything_ms(arm, self.effort)
            report(goals_table(cells, everything, self.effort.points_per_side))
            memory = memory_line({OURS: arm})
            gpus = devices() if self.on_gpu else NO_GPU
        report(f"{gpus} {describe_machine()} {self.effort.rounds} rounds. {memory}")
        return True

    def graphs(self, report: Report) -> bool:
        """Time the graphs alone."""
        times, _ = gate.time_graphs(self.repository, "graphs")
        report(times)
        report(gpu_graphs.time_graphs(self.repository, self.engine, self.effort.rounds))
        return True

    def jpeg(self, report: Report) -> bool:
        """Compare nvImageCodec with libjpeg-turbo; without its package there is nothing to do."""
        if gpu_jpeg.is_installed():
            report(gpu_jpeg.compare(self.repository, on_gpu=self.on_gpu))
        else:
            report("not installed: nvidia-nvimgcodec-cu13, or -cu12 for CUDA 12")
        return True

    def changes(self, report: Report) -> bool:
        """Measure with and without each of the plan's changes for GPUs."""
        plan = gpu_plans.gpu_plan(self.repository, on_gpu=self.on_gpu)
        for name, variant in CHANGES.items():
            if not variant.own_decoders and plan.own_decoder is None:
                report(f"{name}: the plan for this GPU has none")
                continue
            report(name)
            without = name, variant
            report(
                gpu_figures.compare(
                    self.repository, without, self.effort, self.client, on_gpu=self.on_gpu
                )
            )
        return True

    def tests(self, report: Report) -> bool:
        """Run all end-to-end tests."""
        workers = max(MIN_WORKERS, this_machine().cores // CORES_PER_WORKER)
        parallel = ("-n", str(workers), "--dist", "loadfile")
        return run_tests(report, *parallel, "-m", "e2e and not slow", "tests/e2e")

    def beside(self, report: Report) -> bool:
        """Measure the CPU time beside the graphs; a missed goal is no failure."""
        report(beside_graphs.measure(self.weights, self.client, self.baseline))
        report(describe_machine())
        return True

    def stages(self, report: Report) -> bool:
        """Measure the stages of a lone caller's requests."""
        with self.service() as service:
            arm = ServerArm(service)
            arm.masks(POINTS[:1])  # the photo is a known image from here on
            alone, known = (
                self.effort.rounds * self.effort.requests[cell]
                for cell in (gpu_figures.ALONE, gpu_figures.KNOWN)
            )
            counts = {COLD: alone, CACHED: known}
            report(stage_times.measure(arm, counts, self.client))
        return True


def run_tests(report: Report, *arguments: str) -> bool:
    """Run pytest with these arguments; return whether all tests passed."""
    command = [sys.executable, "-m", "pytest", *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            report(line.rstrip())
    return process.returncode == 0


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


def photo_objects(arm: ServerArm, folder: Path) -> list[LabelledObject]:
    """Return the objects of the measurements' photo, outlined by the service's masks."""
    file = folder / "photo.jpg"
    file.write_bytes(photo())
    picture, masks = read_picture(file), arm.masks(POINTS)
    objects = zip(masks, POINTS, strict=True)
    return [
        LabelledObject(file, picture, mask, point, area_and_box(mask)[1]) for mask, point in objects
    ]


def parse_arguments() -> argparse.Namespace:
    """Return the arguments of the command; exit with an error if there is no GPU to check."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--provider", choices=("cuda", "cpu"), default="cuda", help="of ONNX Runtime; default: cuda"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=ROOT / "gpu-check",
        help="folder of the steps' files, one in it for each provider; default: gpu-check",
    )
    parser.add_argument("--step", help="run this step alone, even if it has passed")
    parser.add_argument(
        "--baseline",
        help="branch, tag or commit before, for the step `beside`; default: this checkout without"
        " the plan's changes for GPUs",
    )
    parser.add_argument("--stages", action="store_true", help="run the step `stages` as well")
    arguments = parser.parse_args()
    if arguments.provider == "cuda" and not this_machine().gpu_memory_bytes:
        parser.error(
            "no NVIDIA GPU with its driver, or no onnxruntime-gpu: `make gpu-check PROVIDER=cpu`"
            " needs no GPU"
        )
    return arguments


def main() -> None:
    """Run the command."""
    arguments = parse_arguments()
    on_gpu = arguments.provider == "cuda"
    folder = arguments.folder / arguments.provider
    with ExitStack() as stack:
        client = stack.enter_context(client_process())
        baseline = None
        if arguments.baseline:
            baseline = stack.enter_context(checked_out(arguments.baseline))
        steps = Check(OFFICIAL, client, on_gpu, FULL if on_gpu else FEW, baseline).steps()
        if arguments.step:
            if arguments.step not in steps:
                sys.exit(f"error: expected one of {', '.join(steps)}, got {arguments.step!r}")
            all_is_well = run_step(arguments.step, steps[arguments.step], folder)
        else:
            if not arguments.stages:
                steps.pop("stages")
            all_is_well = run_steps(steps, folder)
    sys.exit(not all_is_well)


if __name__ == "__main__":
    main()
