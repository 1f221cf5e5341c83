"""Resources available to this process: cores, memory, bfloat16, GPUs, OpenVINO."""

import contextlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import psutil
import pynvml

from utils.triton import installation

CPUINFO = Path("/proc/cpuinfo")
CGROUP = Path("/sys/fs/cgroup")
BF16_FLAGS = {"amx_bf16", "avx512_bf16"}


@dataclass(frozen=True)
class Machine:
    """Resources of a machine."""

    cores: int
    """Usable physical cores, at least 1."""
    bf16: bool
    """Hardware support for bfloat16."""
    gpu_memory_bytes: tuple[int, ...]
    """Memory of each GPU, or slice of one, that the installed packages can use."""
    openvino: bool
    """Presence of the package."""
    memory_bytes: int
    """Memory of the machine, or the container's limit."""


def this_machine() -> Machine:
    """Return the resources of this machine."""
    gpus = gpu_memories() if can_use_gpus() else ()
    return Machine(
        usable_cores(), has_bf16(), gpus, find_spec("openvino") is not None, usable_memory()
    )


def usable_cores(cgroup: Path = CGROUP) -> int:
    """Return the physical cores that CPU affinity and the container's quota allow.

    Hardware threads do not count: two on one core share its arithmetic units.
    """
    physical = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0))
    return max(1, math.ceil(min(physical, allowed, _quota(cgroup))))


def usable_memory(cgroup: Path = CGROUP) -> int:
    """Return the bytes of memory that the machine has and the container's limit allows."""
    memory_bytes = psutil.virtual_memory().total
    for name in ("memory.max", "memory/memory.limit_in_bytes"):  # cgroup v2, v1
        with contextlib.suppress(OSError, ValueError):  # "max"
            memory_bytes = min(memory_bytes, int((cgroup / name).read_text()))
    return memory_bytes


def has_bf16(cpuinfo: Path = CPUINFO) -> bool:
    """Return whether the CPU has AMX or AVX-512 instructions for bfloat16."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return False
    flags = next((line for line in lines if line.startswith("flags")), "")
    return bool(BF16_FLAGS & set(flags.split()))


def gpu_memories() -> tuple[int, ...]:
    """Return the memory of each GPU that NVIDIA's driver shows to this process, in bytes; of a GPU
    that is partitioned (MIG), that of the one slice that CUDA uses.

    Empty without a driver.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    memories: list[int] = []
    with contextlib.suppress(pynvml.NVMLError):  # CUDA hides all from the first unknown one on
        uuids = _uuids()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = list(uuids) if visible is None else visible.split(",")
        for name in names[: len(uuids)]:
            memories.append(_gpu_memory(name.strip(), uuids))
    pynvml.nvmlShutdown()
    return tuple(memories)


def _uuids() -> list[str]:
    """Return the UUIDs of all GPUs."""
    handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
    return [str(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]


def _gpu_memory(name: str, uuids: Sequence[str]) -> int:
    """Return the memory of a GPU by its name in CUDA_VISIBLE_DEVICES: an index, the start of a
    UUID, or the UUID of a slice.

    Raises:
        NVMLError: there is none.
    """
    if name.isdecimal():
        handle = pynvml.nvmlDeviceGetHandleByIndex(int(name))
    else:
        uuid = next((uuid for uuid in uuids if name and uuid.startswith(name)), name)
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    with contextlib.suppress(pynvml.NVMLError):  # most GPUs are not partitioned
        handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, 0)
    return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)


def can_use_gpus() -> bool:
    """Return whether an ONNX Runtime with GPU support is installed, or a Triton that has its
    own.
    """
    if any(metadata.distributions(name="onnxruntime-gpu")):
        return True
    try:
        return "onnxruntime" in installation.find_installation().backend_names()
    except installation.TritonSetupError:
        return False


def _quota(cgroup: Path) -> float:
    """Return the CPU quota of the container, in CPUs; infinity without a limit."""
    for names in (["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]):  # cgroup v2, v1
        with contextlib.suppress(OSError):
            limit, period = " ".join((cgroup / name).read_text() for name in names).split()
            return int(limit) / int(period) if limit.isdecimal() else math.inf  # "max", or -1
    return math.inf
