"""What runs where: engines, instances and threads, chosen in one place for the machine and the weights.

| | 2 cores | 16 cores | a GPU |
|---|---|---|---|
| encoder | 1 instance, 2 threads | 2 instances, 8 threads each | 1 instance on each GPU |
| decoder | 2 instances, 2 threads each | 4 instances, 4 threads each | 1 instance on each GPU, runs of 64 prompts |
| orchestrator, new images | 2 | 3 | by cores |
| orchestrator, known images | 2 | 8 | by cores |
| orchestrator, what takes long | 1 | 2 | by cores |

A run of the encoder uses few cores well, and a run of the decoder fewer: where there are many, several runs at once
bring more than more threads each. Two decoders at the least: a click does not wait for another caller's many prompts,
and what one leaves of the cores the other takes. What a person sets (`utils.settings`) wins over all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from utils import tensors
from utils.machine import Machine

ENGINES = ("onnxruntime", "openvino", "openvino-bf16", "tensorrt")
"""`onnxruntime`: float32, on the GPU where there is one. `openvino`: float32, on the processor. `openvino-bf16`: the
same in bfloat16. `tensorrt`: ONNX Runtime on a GPU, the encoder through TensorRT in float16."""

CORES_OF_AN_ENCODER = 8
CORES_OF_A_DECODER = 4
LEAST_DECODERS = 2
MOST_ORCHESTRATORS = 16
DECODER_BATCH_CPU, DECODER_BATCH_GPU = 8, 64
"""Prompts in one run of the decoder: more than 8 do not fit a processor's caches."""

Backend = Literal["onnxruntime", "openvino"]
Precision = Literal["f32", "bf16", "f16"]


class PlanError(ValueError):
    """What was asked for cannot run on this machine; the message is one line that says why."""


@dataclass(frozen=True)
class Network:
    """How Triton runs the encoder or the decoder."""

    backend: Backend
    precision: Precision
    instances: int
    """On each GPU, or in all."""
    threads: int
    """Of one run; a GPU has no use for them."""
    gpu: bool = False
    tensorrt: bool = False

    @property
    def engine(self) -> str:
        """What answers call it: the engine and its precision."""
        name = "tensorrt" if self.tensorrt else "cuda" if self.gpu else self.backend
        return f"{name} {self.precision}"


@dataclass(frozen=True)
class Plan:
    """How Triton runs all of it."""

    encoder: Network
    decoder: Network
    orchestrators: int
    """Processes for requests on new images."""
    orchestrators_cached: int
    """Processes for requests on known images."""
    orchestrators_costly: int
    """Processes for requests that take long."""
    orchestrators_everything: int
    decoder_batch: int

    def instances(self) -> dict[str, int]:
        """Processes of each of the orchestrator's models."""
        return {
            tensors.SEGMENT: self.orchestrators,
            tensors.SEGMENT_CACHED: self.orchestrators_cached,
            tensors.SEGMENT_COSTLY: self.orchestrators_costly,
            tensors.EVERYTHING: self.orchestrators_everything,
        }

    def __str__(self) -> str:
        """One line for the log."""
        parts = [
            f"{name}: {network.engine}, {network.instances} instance(s)"
            + (" on each GPU" if network.gpu else f" of {network.threads} thread(s)")
            for name, network in (("encoder", self.encoder), ("decoder", self.decoder))
        ]
        return "; ".join([*parts, f"orchestrators: {self.orchestrators} and {self.orchestrators_cached}"])


def make_plan(
    machine: Machine,
    architecture: str,
    engine: str = "auto",
    *,
    threads: int | None = None,
    encoders: int | None = None,
    orchestrators: int | None = None,
) -> Plan:
    """The plan for a machine and weights.

    Args:
        machine: what there is.
        architecture: of the weights, as `weights.json` says: `mobile_sam`, or `builtin`.
        engine: one of `ENGINES`, or `auto`.
        threads: of one run of the encoder, in place of the usable cores; the decoder gets no more.
        encoders: instances of the encoder.
        orchestrators: processes for requests on new images, and as many for those on known ones.

    Raises:
        PlanError: the engine cannot run here.
    """
    if engine == "auto":
        engine = best_engine(machine, architecture)
    _check(engine, machine)
    if machine.gpus and not engine.startswith("openvino"):
        tensorrt = engine == "tensorrt"
        encoder = Network("onnxruntime", "f16" if tensorrt else "f32", encoders or 1, 1, gpu=True, tensorrt=tensorrt)
        decoder = Network("onnxruntime", "f32", 1, 1, gpu=True)
        together = encoder.instances * machine.gpus
        batch = DECODER_BATCH_GPU
    else:
        backend: Backend = "onnxruntime" if engine == "onnxruntime" else "openvino"
        together = encoders or max(1, machine.cores // CORES_OF_AN_ENCODER)
        decoders = max(LEAST_DECODERS, machine.cores // CORES_OF_A_DECODER)
        each = threads or max(1, machine.cores // together)
        precision: Precision = "bf16" if engine == "openvino-bf16" else "f32"
        encoder = Network(backend, precision, together, each)
        decoder = Network(backend, precision, decoders, min(each, CORES_OF_A_DECODER))
        batch = DECODER_BATCH_CPU
    by_cores = min(MOST_ORCHESTRATORS, max(2, machine.cores // 2))
    return Plan(
        encoder,
        decoder,
        # One prepares the next image while others wait for the encoder.
        orchestrators or (by_cores if encoder.gpu else min(by_cores, together + 1)),
        orchestrators or by_cores,
        max(1, by_cores // 4),
        together,
        batch,
    )


def best_engine(machine: Machine, architecture: str) -> str:
    """Return the quickest engine that keeps the masks; `make gate` measures both and says what keeping means.

    The built-in weights are so small that OpenVINO's overhead weighs more than its speed, and bfloat16 changes their
    masks too much (mean IoU with float32 0.96).
    """
    if machine.gpus or not machine.openvino or architecture == "builtin":
        return "onnxruntime"
    return "openvino-bf16" if machine.bf16 else "openvino"


def _check(engine: str, machine: Machine) -> None:
    if engine.startswith("openvino") and not machine.openvino:
        raise PlanError(f"the engine {engine} needs the package openvino, which is not installed here")
    if engine == "openvino-bf16" and not machine.bf16:
        raise PlanError(f"the engine {engine} needs a processor with AMX or AVX512-BF16, this one has neither")
    if engine == "tensorrt" and not machine.gpus:
        raise PlanError(f"the engine {engine} needs an NVIDIA GPU and an ONNX Runtime for it")
