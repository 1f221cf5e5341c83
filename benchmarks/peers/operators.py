"""torchvision beside a PyTorch build that it was not compiled for."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

_LIBRARY = torch.library.Library("torchvision", "FRAGMENT")
"""Owns the declared operators, which live as long as it does."""


def declare() -> None:
    """Declare the operators without which `import torchvision` fails, unless its compiled library has them.

    The compiled library loads only with the PyTorch build that it was linked against, which a CPU build often is not.
    MobileSAM calls neither operator. Call this once, before the first `import torchvision`.

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
