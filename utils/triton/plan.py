"""Plan of engines, instances and threads for a machine and weights.

| | 2 cores | 16 cores | a GPU |
|---|---|---|---|
| encoder | 1 instance, 2 threads | 2 instances, 8 threads each | 1 instance per GPU |
| decoder | 2 instances, 2 threads each | 4 instances, 4 threads each | 1 instance per GPU, batches of 64 prompts |
| orchestrator, new images | 2 | 3 | by cores |
| orchestrator, known images | 4 | 8 | by cores |
| orchestrator, costly requests | 1 | 2 | by cores |

The encoder scales to few cores, and the decoder to fewer, so on many cores several parallel runs are faster than more
threads per run. There are at least two decoders, so that a click does not wait for another caller's many prompts. More
processes for known images than cores keep the decoders busy: each waits for its decoder most of the time.
Settings (`utils.settings`) override all of this.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from utils.triton.machine import Machine
from utils.triton.tensors import EVERYTHING, SEGMENT, SEGMENT_CACHED, SEGMENT_COSTLY

ENGINES = ("onnxruntime", "openvino", "openvino-bf16", "tensorrt")
"""`onnxruntime`: float32, on a GPU if there is one. `openvino`: float32, on the CPU. `openvino-bf16`: the same with the
encoder in bfloat16. `tensorrt`: ONNX Runtime on a GPU, with TensorRT in float16 for the encoder."""

CORES_PER_ENCODER = 8
CORES_PER_DECODER = 4
MIN_DECODERS = 2
MIN_ORCHESTRATORS_CACHED, MAX_ORCHESTRATORS = 4, 16
DECODER_BATCH_CPU, DECODER_BATCH_GPU = 8, 64
"""Prompts per decoder run; more than 8 exceed a CPU's caches."""

Backend = Literal["onnxruntime", "openvino"]
Precision = Literal["f32", "bf16", "f16"]


class PlanError(ValueError):
    """The chosen engine cannot run on this machine."""


@dataclass(frozen=True)
class Network:
    """Execution settings of the encoder or the decoder."""

    backend: Backend
    precision: Precision
    instances: int
    """Instances per GPU, or in total on the CPU."""
    threads: int
    """CPU threads per run; unused on a GPU."""
    gpu: bool = False
    tensorrt: bool = False

    @property
    def engine(self) -> str:
        """Return engine and precision, as shown in answers."""
        name = "tensorrt" if self.tensorrt else "cuda" if self.gpu else self.backend
        return f"{name} {self.precision}"


@dataclass(frozen=True)
class Plan:
    """Execution settings of all models."""

    encoder: Network
    decoder: Network
    instances: Mapping[str, int]
    """Processes of each orchestrator model."""
    decoder_batch: int
    """Prompts per decoder run."""

    def __str__(self) -> str:
        """Return one line for the log."""
        parts = [
            f"{name}: {network.engine}, {network.instances} instance(s)"
            + (" on each GPU" if network.gpu else f" of {network.threads} thread(s)")
            for name, network in (("encoder", self.encoder), ("decoder", self.decoder))
        ]
        return "; ".join([*parts, f"orchestrators: {self.instances[SEGMENT]} and {self.instances[SEGMENT_CACHED]}"])


def make_plan(
    machine: Machine,
    architecture: str,
    engine: str = "auto",
    *,
    threads: int | None = None,
    encoders: int | None = None,
    orchestrators: int | None = None,
) -> Plan:
    """Return the plan for a machine and weights.

    Args:
        machine: resources of the machine.
        architecture: architecture in `weights.json`: `mobile_sam` or `builtin`.
        engine: one of `ENGINES`, or `auto`.
        threads: threads per encoder run, and maximum per decoder run; default: by cores.
        encoders: encoder instances; default: by cores or GPU.
        orchestrators: processes for new images, and the same number for known images; default: by cores.

    Raises:
        PlanError: the engine cannot run on this machine.
    """
    if engine == "auto":
        engine = best_engine(machine, architecture)
    _check_engine(engine, machine)
    if machine.gpus and not engine.startswith("openvino"):
        tensorrt = engine == "tensorrt"
        encoder = Network("onnxruntime", "f16" if tensorrt else "f32", encoders or 1, 1, gpu=True, tensorrt=tensorrt)
        decoder = Network("onnxruntime", "f32", 1, 1, gpu=True)
        total_encoders = encoder.instances * machine.gpus
        batch = DECODER_BATCH_GPU
    else:
        backend: Backend = "onnxruntime" if engine == "onnxruntime" else "openvino"
        total_encoders = encoders or max(1, machine.cores // CORES_PER_ENCODER)
        decoders = max(MIN_DECODERS, machine.cores // CORES_PER_DECODER)
        threads_each = threads or max(1, machine.cores // total_encoders)
        precision: Precision = "bf16" if engine == "openvino-bf16" else "f32"
        encoder = Network(backend, precision, total_encoders, threads_each)
        # In bfloat16 the decoder changes too many masks (docs/engines.md).
        decoder = Network(backend, "f32", decoders, min(threads_each, CORES_PER_DECODER))
        batch = DECODER_BATCH_CPU
    by_cores = min(MAX_ORCHESTRATORS, max(2, machine.cores // 2))
    instances = {
        # One more than encoders, to prepare the next image meanwhile.
        SEGMENT: orchestrators or (by_cores if encoder.gpu else min(by_cores, total_encoders + 1)),
        SEGMENT_CACHED: orchestrators or max(MIN_ORCHESTRATORS_CACHED, by_cores),
        SEGMENT_COSTLY: max(1, by_cores // 4),
        EVERYTHING: total_encoders,
    }
    return Plan(encoder, decoder, instances, batch)


def best_engine(machine: Machine, architecture: str) -> str:
    """Return the fastest engine that preserves the masks; `make gate` measures both.

    With the small built-in weights OpenVINO's overhead exceeds its gain, and bfloat16 changes the masks too much.
    """
    if machine.gpus or not machine.openvino or architecture == "builtin":
        return "onnxruntime"
    return "openvino-bf16" if machine.bf16 else "openvino"


def _check_engine(engine: str, machine: Machine) -> None:
    if engine.startswith("openvino") and not machine.openvino:
        raise PlanError(f"the engine {engine} needs the package openvino, which is not installed")
    if engine == "openvino-bf16" and not machine.bf16:
        raise PlanError(f"the engine {engine} needs a CPU with AMX or AVX512-BF16, and this one has neither")
    if engine == "tensorrt" and not machine.gpus:
        raise PlanError(f"the engine {engine} needs an NVIDIA GPU and an ONNX Runtime with GPU support")
