"""Plan of engines, instances and threads for a machine and weights.

| | 2 cores | 16 cores | a GPU |
|---|---|---|---|
| encoder | 1 instance, 2 threads | 2 instances, 8 threads each | 2 instances per GPU |
| decoder | 1 instance, 2 threads | 4 instances, 4 threads each | 1 per GPU, batches of 64 prompts |
| orchestrator, new images | 2 | 3 | by cores: 12 of 16 |
| orchestrator, known images | 2, with a decoder | 8, with a decoder | by cores, with a decoder |
| orchestrator, costly requests | 1 | 2 | by cores |
| orchestrator, all masks | 1, with a decoder | 2, each with a decoder | by cores |

The encoder scales to few cores, and the decoder to fewer, so on many cores several parallel runs
are faster than more threads per run. On a CPU the processes for known images and for all masks run
the decoder themselves, so that no click waits for another caller's many prompts; the model in
Triton is for the other processes. In front of a GPU each waits for it most of the time, so there
are more of them; of two encoders one runs while the other copies (docs/performance-gpu.md). There,
the networks scale images and make masks (`sam_onnx.pixels`), and the plan shares out the GPU's
memory: below 20 GB there is one encoder, below 16 GB the processes for known images have no
decoder. A large encoder has fewer instances where the memory holds no more. Settings
(`utils.settings`) override all of this.
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
"""Prompts per decoder run, and points of automatic masks in one request."""
GRID_BATCH = 16
"""The latter on a CPU."""
GPU_SHARE = 0.9
"""Share of a GPU's memory that is given to processes."""
CONTEXT_BYTES = 750 * 2**20
"""Memory of a GPU that each process with CUDA takes besides its limit: about 600 MB of its own, and
embeddings that it keeps (`triton_backends.common.onnxruntime_engine.MAX_KEPT_BYTES`)."""
ENCODER_GPU_BYTES = 2 * 2**30
"""Limit of an encoder without its files: a run of MobileSAM's, and 1.1 GB to scale an image of 17
megapixels (`orchestrator.images.MAX_PIXELS_OF_ENCODER`)."""
WEIGHTS_STEP_BYTES = 2**28
"""Step of an encoder's limit by the size of its files: other weights of about the same size need no
restart."""
DECODER_GPU_BYTES = 5 * 2**29
"""Limit of a decoder without the masks that it makes: 64 prompts take 2.2 GB."""
OWN_DECODER_GPU_BYTES = 2**29
"""Limit of a known-image process's decoder, for 8 prompts, without the masks that it makes."""
OWN_MASKS_BYTES = 600 * 2**20
"""Memory of such a decoder for masks: three of 12.5 megapixels, the largest image for these
processes (`orchestrator.costs.COSTLY_PIXELS`)."""
MIN_OWN_DECODERS = 2
"""One process for known images would answer fewer clicks than many that ask Triton's decoder."""
OWN_DECODERS_SHARE = 0.75
"""Largest share of what encoders and Triton's decoder leave of a GPU's memory."""
MIN_MASKS_BYTES, MAX_MASKS_BYTES = 2**28, 2**34
"""Memory of a GPU's decoder for masks."""
MIN_TWO_ENCODERS_BYTES, MIN_OWN_DECODERS_BYTES = 20 * 10**9, 15 * 10**9
"""Least memory of a GPU for two encoders, and for known-image processes with a decoder: cards of 16
GB show less than that."""

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
    memory_bytes: int = 0
    """Limit of an instance's memory on a GPU."""

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
    mask_memory_bytes: int = 0
    """Memory of a GPU's decoder for the masks of a run."""
    grid_batch: int = GRID_BATCH
    """Points of automatic masks in one request: other callers wait until it ends."""
    own_decoder: Network | None = None
    """Decoder of each known-image process, None if they ask Triton's."""

    @property
    def gpu(self) -> bool:
        """Return whether the networks run on GPUs."""
        return self.encoder.gpu

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
    machine: Machine, engines: Sequence[str], settings: Settings, encoder_sizes: Sequence[int] = ()
) -> Plan:
    """Return the plan for a machine and weights.

    Args:
        machine: resources of the machine.
        engines: `engines` in the descriptor of the weights.
        settings: engine, encoders, orchestrators, and threads, which are also the maximum per
            decoder run.
        encoder_sizes: bytes of the encoder's files of each version.

    Raises:
        PlanError: the engine cannot run on this machine.
    """
    engine = best_engine(machine, engines) if settings.engine == "auto" else settings.engine
    _check_engine(engine, machine)
    if machine.gpu_memory_bytes and not engine.startswith("openvino"):
        # The same plan for another version of the same size, which then needs no restart. While
        # both are loaded, they share what runs leave of the memory.
        return _gpu_plan(machine, settings, max(encoder_sizes, default=0))
    return _cpu_plan(machine, engine, settings, sum(encoder_sizes))


def _cpu_plan(machine: Machine, engine: str, settings: Settings, encoder_bytes: int) -> Plan:
    backend: Backend = "onnxruntime" if engine == "onnxruntime" else "openvino"
    encoder_memory = ENCODER_BYTES + ENCODER_BYTES_PER_FILE_BYTE * encoder_bytes
    fitting = int(ENCODERS_SHARE * machine.memory_bytes / encoder_memory)
    encoders = settings.encoders or max(1, min(machine.cores // CORES_PER_ENCODER, fitting))
    decoders = max(1, machine.cores // CORES_PER_DECODER)
    threads_each = settings.threads or max(1, machine.cores // encoders)
    precision: Precision = "bf16" if engine == "openvino-bf16" else "f32"
    # In bfloat16 the decoder changes too many masks of further clicks (docs/engines.md).
    decoder = Network(backend, "f32", decoders, min(threads_each, CORES_PER_DECODER))
    by_cores = _processes(machine)
    instances = {
        # One more than encoders prepares the next image meanwhile.
        SEGMENT: settings.orchestrators or min(MAX_ORCHESTRATORS, by_cores, encoders + 1),
        SEGMENT_CACHED: settings.orchestrators or by_cores,
        SEGMENT_COSTLY: max(1, by_cores // 4),
        EVERYTHING: encoders,
    }
    return Plan(
        Network(backend, precision, encoders, threads_each),
        decoder,
        instances,
        DEFAULTS.decoder_batch,
        own_decoder=decoder,
    )


def _gpu_plan(machine: Machine, settings: Settings, encoder_bytes: int) -> Plan:
    """Return the plan for GPUs, each with the memory of the smallest.

    Limits of what masks need are twice that: memory grows to powers of two.
    """
    memory = min(machine.gpu_memory_bytes)
    for_weights = int(ENCODER_BYTES_PER_FILE_BYTE * encoder_bytes)
    encoder_limit = ENCODER_GPU_BYTES + -(-for_weights // WEIGHTS_STEP_BYTES) * WEIGHTS_STEP_BYTES
    shared_out = int(GPU_SHARE * memory)
    for_decoder = CONTEXT_BYTES + DECODER_GPU_BYTES
    fitting = (shared_out - for_decoder - 2 * MIN_MASKS_BYTES) // (CONTEXT_BYTES + encoder_limit)
    most = ENCODERS_PER_GPU if memory >= MIN_TWO_ENCODERS_BYTES else 1
    encoders = settings.encoders or max(1, min(most, fitting))
    free = shared_out - for_decoder - encoders * (CONTEXT_BYTES + encoder_limit)

    gpus = len(machine.gpu_memory_bytes)
    by_cores = _processes(machine)
    for_known = settings.orchestrators or max(MIN_ORCHESTRATORS_GPU, by_cores)
    own_decoder = None
    own_decoder_bytes = OWN_DECODER_GPU_BYTES + 2 * OWN_MASKS_BYTES
    fitting = int(OWN_DECODERS_SHARE * free / (CONTEXT_BYTES + own_decoder_bytes))
    each = min(fitting, -(-for_known // gpus))
    if memory >= MIN_OWN_DECODERS_BYTES and each * gpus >= min(MIN_OWN_DECODERS, for_known):
        own_decoder = Network(
            "onnxruntime", "f32", each, 1, gpu=True, memory_bytes=own_decoder_bytes
        )
        free -= each * (CONTEXT_BYTES + own_decoder_bytes)
        for_known = each * gpus
    masks = max(MIN_MASKS_BYTES, min(MAX_MASKS_BYTES, free // 2))
    # Preparing an image takes longest.
    for_new = min(MAX_ORCHESTRATORS, max(by_cores, machine.cores * 3 // 4))
    instances = {
        SEGMENT: settings.orchestrators or for_new,
        SEGMENT_CACHED: for_known,
        SEGMENT_COSTLY: max(1, by_cores // 4),
        EVERYTHING: by_cores,
    }
    decoder_limit = DECODER_GPU_BYTES + 2 * masks
    return Plan(
        Network("onnxruntime", "f32", encoders, 1, gpu=True, memory_bytes=encoder_limit),
        Network("onnxruntime", "f32", 1, 1, gpu=True, memory_bytes=decoder_limit),
        instances,
        DECODER_BATCH_GPU,
        masks,
        DECODER_BATCH_GPU,
        own_decoder,
    )


def _processes(machine: Machine) -> int:
    """Return the number of processes for known images on a machine's cores."""
    return min(MAX_ORCHESTRATORS, max(2, machine.cores // 2))


def best_engine(machine: Machine, engines: Sequence[str]) -> str:
    """Return the first of the engines that this machine can run.

    ONNX Runtime on a GPU, and where it can run none.
    """
    if machine.gpu_memory_bytes:
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
