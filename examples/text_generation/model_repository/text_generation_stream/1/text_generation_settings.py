"""Which model, in which dtype, on which device: the environment says. Nothing here needs Triton, or a model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

MODEL, DTYPE, DEVICE = "TEXT_GENERATION_MODEL", "TEXT_GENERATION_DTYPE", "TEXT_GENERATION_DEVICE"
AUTO = "auto"
DTYPES = (AUTO, "float32", "bfloat16", "float16")


class Unusable(ValueError):
    """A setting cannot be used; the message is one line: the variable, what was expected, and what came."""


@dataclass(frozen=True)
class Settings:
    """What to load."""

    model: str
    """A name at Hugging Face, or a folder."""
    dtype: str
    """One of `DTYPES`; `auto`: 16 bits on a GPU, 32 elsewhere."""
    device: str
    """`auto`, `cpu`, `cuda`, or `cuda:` and a number; `auto`: a GPU where there is one."""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Settings:
        """The settings of an environment.

        Raises:
            Unusable: there is no such dtype or device.
        """
        dtype, device = environ.get(DTYPE) or AUTO, environ.get(DEVICE) or AUTO
        if dtype not in DTYPES:
            raise Unusable(f"{DTYPE}: expected one of {', '.join(DTYPES)}, got {dtype!r}")
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", device):
            raise Unusable(f"{DEVICE}: expected auto, cpu, cuda or cuda:N, got {device!r}")
        return cls(environ.get(MODEL) or "gpt2", dtype, device)
