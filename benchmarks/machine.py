"""Description of the machine and the package versions of a measurement."""

from __future__ import annotations

import datetime
import os
import platform
import re
from importlib import metadata
from pathlib import Path

import psutil

PACKAGES = ("bentoml", "nvidia-pytriton", "tritonclient", "onnxruntime", "openvino", "fastapi", "numpy")
FEATURES = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


def machine() -> dict[str, str]:
    """Return date, processor, memory and versions."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").is_file() else ""
    model = re.search(r"^model name\s*: (.*)", text, re.MULTILINE)
    flags = set((re.search(r"^flags\s*: (.*)", text, re.MULTILINE) or ["", ""])[1].split())
    versions = {name: version for name in PACKAGES if (version := _version(name))}
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "processor": model[1] if model else platform.processor(),
        "features": ", ".join(name for name in FEATURES if name in flags),
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "Python": platform.python_version(),
        **versions,
    }


def line(about: dict[str, str]) -> str:
    """Return the description as one line of text."""
    versions = ", ".join(f"{name} {about[name]}" for name in ("Python", *PACKAGES) if name in about)
    cores = f"{about['cores']} cores of an {about['processor']} ({about['features']}), {about['memory']}"
    return f"Measured on {about['date']} on {cores}. {versions}."


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
