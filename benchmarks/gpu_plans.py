"""Model repositories with the plan for a GPU, to be served as they are.

Their instances are on the GPU, or on the CPU where there is none. Some of what the plan does for
GPUs can be left out.
"""

import compileall
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from benchmarks.engines import CUDA, ONNX_RUNTIME
from benchmarks.service import running_checkout
from harness import ROOT, Server
from orchestrator import tensors
from utils.inference.known_images import KNOWN_IMAGES
from utils.settings import Settings
from utils.triton.machine import this_machine
from utils.triton.plan import MOBILE_SAM_ENGINES, Plan, make_plan
from utils.triton.repository import CONFIG, apply_plan, export, plan_for_this_machine

IMITATED_GPU_BYTES = 16 * 10**9
"""Memory of the GPU that the plan on the CPU provider is for: it takes that of this machine."""
AS_IT_IS = {"MOBILE_SAM_MODEL_CONTROL_MODE": "poll"}
"""Setting of a service that serves a repository without a plan of its own."""
PARAMETERS_OF_PIXELS = ("networks", "mask_memory_bytes", "decoder_file")
"""Parameters of the orchestrator's models for networks that work on pixels."""


@dataclass(frozen=True)
class Variant:
    """The plan for a GPU, or the same without some of what it does for GPUs."""

    work_on_pixels: bool = True
    """Whether the networks scale images and make masks."""
    own_decoders: bool = True
    """Whether the processes for known images have decoders of their own."""
    new_images_at_once: bool = True
    """Whether the model for known images is not asked for new ones."""


PLAN = Variant()
WITHOUT_PIXELS = Variant(work_on_pixels=False)
WITHOUT_OWN_DECODERS = Variant(own_decoders=False)
ASKING_FIRST = Variant(new_images_at_once=False)
BEFORE = Variant(work_on_pixels=False, own_decoders=False, new_images_at_once=False)


def gpu_plan(repository: Path, *, on_gpu: bool) -> Plan:
    """Return the plan of this machine with its GPUs, or with one that it does not have."""
    if on_gpu:
        return plan_for_this_machine(repository, Settings())
    machine = replace(this_machine(), gpu_memory_bytes=(IMITATED_GPU_BYTES,))
    return make_plan(machine, MOBILE_SAM_ENGINES, Settings())


def write(repository: Path, folder: Path, variant: Variant = PLAN, *, on_gpu: bool) -> Path:
    """Write a copy of a model repository with the plan for a GPU; return the folder.

    Args:
        repository: the model repository.
        folder: a folder that does not exist.
        variant: what the copy has of the plan.
        on_gpu: False for instances on the CPU, where ONNX Runtime's CPU provider runs the plan.
    """
    plan = gpu_plan(repository, on_gpu=on_gpu)
    if not variant.own_decoders:
        plan = replace(plan, own_decoder=None)
    export(repository, plan, folder)
    if not variant.work_on_pixels:
        _leave_pixels_to_orchestrator(repository, folder, plan)
    if not on_gpu:
        _move_to_cpu(folder)
    # Otherwise Python does it at the start, and Triton, which looks for changes, loads the models
    # again.
    compileall.compile_dir(folder, quiet=1)
    if not variant.new_images_at_once:
        # A table that is no file cannot be used: any image may be known.
        (_caches(folder) / "embeddings" / KNOWN_IMAGES).mkdir(parents=True)
    return folder


def serving(folder: Path, checkout: Path = ROOT, **settings: str) -> AbstractContextManager[Server]:
    """Run the service of a checkout with a repository that `write` has made, with more settings,
    and its caches beside it; several may run at once.
    """
    return running_checkout(checkout, folder, _caches(folder), **AS_IT_IS, **settings)


def _caches(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}-cache")


def _leave_pixels_to_orchestrator(repository: Path, folder: Path, plan: Plan) -> None:
    for model in tensors.NETWORKS:
        config = (repository / model / CONFIG).read_text()
        (folder / model / CONFIG).write_text(apply_plan(model, config, plan))
    for model in tensors.MODELS:
        file = folder / model / CONFIG
        parsed = text_format.Parse(file.read_text(), ModelConfig())
        for name in PARAMETERS_OF_PIXELS:
            parsed.parameters.pop(name, None)
        file.write_text(text_format.MessageToString(parsed))


def _move_to_cpu(folder: Path) -> None:
    for file in folder.glob(f"*/{CONFIG}"):
        text = file.read_text().replace("KIND_GPU", "KIND_CPU").replace(CUDA, ONNX_RUNTIME)
        file.write_text(text)
