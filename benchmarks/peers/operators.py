"""Workaround for a torchvision that was not compiled for the installed PyTorch build."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

_LIBRARY = torch.library.Library("torchvision", "FRAGMENT")
"""Owner of the declared operators; they live as long as it does."""


def declare() -> None:
    """Declare the operators that `import torchvision` needs, unless its compiled library provides them.

    The compiled library loads only with the PyTorch build that it was linked against, often not a CPU build. MobileSAM
    calls neither operator. Call this once, before the first `import torchvision`.

    Raises:
        ModuleNotFoundError: torchvision is not installed.
    """
    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("torchvision is not installed: run `make env-peers`", name="torchvision")
    try:
        torch.ops.load_library(str(Path(found.origin).with_name("_C.so")))
    except OSError:
        for operator in ("nms", "qnms"):
            _LIBRARY.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
