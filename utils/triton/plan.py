"""Plan of engines, instances and threads for a machine and weights.

| | 2 cores | 16 cores | a GPU |
|---|---|---|---|
| encoder | 1 instance, 2 threads | 2 instances, 8 threads each | 2 instances per GPU |
| decoder | 1 instance, 2 threads | 4 instances, 4 threads each | 1 per GPU, batches of 64 prompts |
| orchestrator, new images | 2 | 3 | by cores: 12 of 16 |
| orchestrator, known images | 2, with a decoder | 8, with a decoder | by cores, at least 4 |
| orchestrator, costly requests | 1 | 2 | by cores |
| orchestrator, all masks | 1, with a decoder | 2, each with a decoder | by cores |

The encoder scales to few cores, and the decoder to fewer, so on many cores several parallel runs
are faster than more threads per run. On a CPU the processes for known images and for all masks run
the decoder themselves, so that no click waits for another caller's many prompts; the model in
Triton is for the other processes. In front of a GPU each waits for it most of the time, so there
are more of them; of two encoders one runs while the other copies (docs/performance-gpu.md). A large
encoder has fewer instances where the memory holds no more. Settings (`utils.settings`) override all
of this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.settings import DEFAULTS
from orchestrator.tensors import EVERYTHING, SEGMENT, SEGMENT_CACHED, SEGMENT_COSTLY
from utils.settings import ENGINES, Settings
from utils.triton.machine import Machine

MOBILE_SAM_ENGINES = ("openvino-bf16", "openvino", "onnxruntime")
"""Engines for weights whose descriptor is not known, such as those in a bucket."""
CORES_PER_ENCODER = 8
ENCODERS_PER_GPU = 2
CORES_PER_DECODER = 4
ENCODER_BYTES, ENCODER_BYTES_PER_FILE_BYTE = 2**29, 2.2
"""Memory of an instance of the encoder with OpenVINO: a constant, and a multiple of its files
(docs/family.md)."""
ENCODERS_SHARE = 0.5
"""Share of the memory for encoders."""
MIN_ORCHESTRATORS_GPU, MAX_ORCHESTRATORS = 4, 16
DECODER_BATCH_GPU = 64
"""Prompts per decoder run."""

Backend = Literal["onnxruntime", "openvino"]
Precision = Literal["f32", "bf16"]


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

    @property
    def engine(self) -> str:
        """Return engine and precision, as shown in answers."""
        name = "cuda" if self.gpu else self.backend
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
        return "; ".join(
            [
                *parts,
                f"orchestrators: {self.instances[SEGMENT]} and {self.instances[SEGMENT_CACHED]}",
            ]
        )


def make_plan(
    machine: Machine, engines: Sequence[str], settings: Settings, encoder_bytes: int = 0
) -> Plan:
    """Return the plan for a machine and weights.

    Args:
        machine: resources of the machine.
        engines: `engines` in the descriptor of the weights.
        settings: engine, encoders, orchestrators, and threads, which are also the maximum per
            decoder run.
        encoder_bytes: size of the encoder's files, all versions together.

    Raises:
        PlanError: the engine cannot run on this machine.
    """
    engine = best_engine(machine, engines) if settings.engine == "auto" else settings.engine
    _check_engine(engine, machine)
    if machine.gpus and not engine.startswith("openvino"):
        encoder = Network("onnxruntime", "f32", settings.encoders or ENCODERS_PER_GPU, 1, gpu=True)
        decoder = Network("onnxruntime", "f32", 1, 1, gpu=True)
        total_encoders = encoder.instances * machine.gpus
        batch = DECODER_BATCH_GPU
    else:
        backend: Backend = "onnxruntime" if engine == "onnxruntime" else "openvino"
        fitting = (
            ENCODERS_SHARE
            * machine.memory_bytes
            / (ENCODER_BYTES + ENCODER_BYTES_PER_FILE_BYTE * encoder_bytes)
        )
        total_encoders = settings.encoders or max(
            1, min(machine.cores // CORES_PER_ENCODER, int(fitting))
        )
        decoders = max(1, machine.cores // CORES_PER_DECODER)
        threads_each = settings.threads or max(1, machine.cores // total_encoders)
        precision: Precision = "bf16" if engine == "openvino-bf16" else "f32"
        encoder = Network(backend, precision, total_encoders, threads_each)
        # In bfloat16 the decoder changes too many masks of further clicks (docs/engines.md).
        decoder = Network(backend, "f32", decoders, min(threads_each, CORES_PER_DECODER))
        batch = DEFAULTS.decoder_batch
    by_cores = min(MAX_ORCHESTRATORS, max(2, machine.cores // 2))
    # One more than encoders prepares the next image meanwhile; before a GPU, preparing takes
    # longest.
    for_new = (
        max(by_cores, machine.cores * 3 // 4) if encoder.gpu else min(by_cores, total_encoders + 1)
    )
    instances = {
        SEGMENT: settings.orchestrators or min(MAX_ORCHESTRATORS, for_new),
        SEGMENT_CACHED: (
            settings.orchestrators
            or (max(MIN_ORCHESTRATORS_GPU, by_cores) if decoder.gpu else by_cores)
        ),
        SEGMENT_COSTLY: max(1, by_cores // 4),
        EVERYTHING: by_cores if encoder.gpu else total_encoders,
    }
    return Plan(encoder, decoder, instances, batch)


def best_engine(machine: Machine, engines: Sequence[str]) -> str:
    """Return the first of the engines that this machine can run.

    ONNX Runtime on a GPU, and where it can run none.
    """
    if machine.gpus:
        return "onnxruntime"
    runs = {"openvino": machine.openvino, "openvino-bf16": machine.openvino and machine.bf16}
    return next(
        (engine for engine in engines if runs.get(engine, engine in ENGINES)), "onnxruntime"
    )


def _check_engine(engine: str, machine: Machine) -> None:
    if engine.startswith("openvino") and not machine.openvino:
        raise PlanError(f"the engine {engine} needs the package openvino, which is not installed")
    if engine == "openvino-bf16" and not machine.bf16:
        raise PlanError(
            f"the engine {engine} needs a CPU with AMX or AVX512-BF16, and this one has neither"
        )
