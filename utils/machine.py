"""What this process may use of the machine: cores, bfloat16, GPUs, OpenVINO."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import psutil
import pynvml

from utils import triton

CPUINFO = Path("/proc/cpuinfo")
CGROUP = Path("/sys/fs/cgroup")
BF16_FLAGS = {"amx_bf16", "avx512_bf16"}


@dataclass(frozen=True)
class Machine:
    """A machine, as far as plans depend on it."""

    cores: int
    """Physical cores that this process may use, at least 1."""
    bf16: bool
    """Whether the processor multiplies bfloat16 in hardware."""
    gpus: int
    """That what is installed can use."""
    openvino: bool
    """Whether the package is installed."""


def this_machine() -> Machine:
    """The machine at hand."""
    gpus = count_gpus() if can_use_gpus() else 0
    return Machine(usable_cores(), has_bf16(), gpus, find_spec("openvino") is not None)


def usable_cores(cgroup: Path = CGROUP) -> int:
    """Cores of the machine, less where the process is bound to some of them or its container has a quota.

    Two threads on one core's two hardware threads share its arithmetic units, so these count once.
    """
    physical = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0))
    return max(1, math.ceil(min(physical, allowed, _quota(cgroup))))


def has_bf16(cpuinfo: Path = CPUINFO) -> bool:
    """Whether the processor has AMX or AVX-512 instructions for bfloat16."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return False
    flags = next((line for line in lines if line.startswith("flags")), "")
    return bool(BF16_FLAGS & set(flags.split()))


def count_gpus() -> int:
    """GPUs that NVIDIA's driver shows to this process; 0 where there is no driver."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in {"", "-1", "NoDevFiles"}:
        return 0
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return 0
    try:
        count = int(pynvml.nvmlDeviceGetCount())
    finally:
        pynvml.nvmlShutdown()
    return count if visible is None else min(count, len(visible.split(",")))


def can_use_gpus() -> bool:
    """Whether an ONNX Runtime for GPUs is installed, or a Triton that has its own."""
    try:
        metadata.version("onnxruntime-gpu")
    except metadata.PackageNotFoundError:
        pass
    else:
        return True
    try:
        return "onnxruntime" in triton.find_installation().backend_names()
    except triton.TritonSetupError:
        return False


def _quota(cgroup: Path) -> float:
    """Processors that the container may keep busy; infinite where it is not limited."""
    try:
        limit, period = (cgroup / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            limit = (cgroup / "cpu" / "cpu.cfs_quota_us").read_text().strip()
            period = (cgroup / "cpu" / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return math.inf
    if not limit.isdecimal() or not period.isdecimal():  # "max", or -1
        return math.inf
    return int(limit) / max(1, int(period))
