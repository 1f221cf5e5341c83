"""Resources available to this process: cores, memory, bfloat16, GPUs, OpenVINO."""

import contextlib
import math
import os
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
    gpus: int
    """GPUs that the installed packages can use."""
    openvino: bool
    """Presence of the package."""
    memory_bytes: int
    """Memory of the machine, or the container's limit."""


def this_machine() -> Machine:
    """Return the resources of this machine."""
    gpus = count_gpus() if can_use_gpus() else 0
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


def count_gpus() -> int:
    """Return the number of GPUs that NVIDIA's driver shows to this process; 0 without a driver."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in {"", "-1", "NoDevFiles"}:
        return 0
    try:
        pynvml.nvmlInit()
        count = int(pynvml.nvmlDeviceGetCount())
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return 0
    return count if visible is None else min(count, len(visible.split(",")))


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
