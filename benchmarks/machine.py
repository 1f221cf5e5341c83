"""Description of the machine that a measurement ran on."""

import datetime
import os
import platform
import re
from importlib import metadata
from pathlib import Path

import psutil

PACKAGES = (
    "bentoml",
    "nvidia-pytriton",
    "tritonclient",
    "onnxruntime",
    "onnxruntime-gpu",
    "openvino",
    "numpy",
)
FEATURES = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
CPU_FIELD = re.compile(r"^(model name|flags)\s*: (.*)", re.MULTILINE)


def describe_machine(*, versions: bool = True) -> str:
    """Return date, processor and memory as a line of text.

    Args:
        versions: add the versions of Python and of the packages.
    """
    cpu = dict(CPU_FIELD.findall(Path("/proc/cpuinfo").read_text()))
    flags = cpu.get("flags", "").split()
    features = ", ".join(name for name in FEATURES if name in flags)
    processor = cpu.get("model name", platform.machine())
    date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    memory_gib = psutil.virtual_memory().total / 2**30
    cores = f"{os.cpu_count()} cores of an {processor} ({features})"
    hardware = f"Measured on {date} on {cores}, {memory_gib:.0f} GiB."
    if not versions:
        return hardware
    installed = {distribution.name for distribution in metadata.distributions()}
    named = [f"{name} {metadata.version(name)}" for name in PACKAGES if name in installed]
    return f"{hardware} {', '.join([f'Python {platform.python_version()}', *named])}."
