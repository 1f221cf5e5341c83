"""Settings from environment variables. Needs neither Triton nor a model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

MODEL, DTYPE, DEVICE = "TEXT_GENERATION_MODEL", "TEXT_GENERATION_DTYPE", "TEXT_GENERATION_DEVICE"
AUTO = "auto"
DTYPES = (AUTO, "float32", "bfloat16", "float16")


class SettingsError(ValueError):
    """Invalid setting; the message names the variable, what was expected and what came."""


@dataclass(frozen=True)
class Settings:
    """Model, dtype and device."""

    model: str
    """Hugging Face name or folder."""
    dtype: str
    """One of `DTYPES`; `auto`: 16 bits on a GPU, 32 on a CPU."""
    device: str
    """`auto`, `cpu`, `cuda` or `cuda:N`; `auto`: a GPU if available."""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Settings:
        """Read the settings from environment variables.

        Raises:
            SettingsError: the dtype or device is invalid.
        """
        dtype, device = environ.get(DTYPE) or AUTO, environ.get(DEVICE) or AUTO
        if dtype not in DTYPES:
            raise SettingsError(f"{DTYPE}: expected one of {', '.join(DTYPES)}, got {dtype!r}")
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
            raise SettingsError(f"{DEVICE}: expected auto, cpu, cuda or cuda:N, got {device!r}")
        return cls(environ.get(MODEL) or "gpt2", dtype, device)
