"""Official predictor of the package `mobilesam-mirror`, in the peers' environment."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

_LIBRARY = torch.library.Library("torchvision", "FRAGMENT")
"""Owner of the declared operators; they live as long as it does."""


def declare_operators() -> None:
    """Declare the operators that `import torchvision` needs, unless its compiled library provides them.

    The compiled library loads only with the PyTorch build that it was linked against, often not a CPU build. MobileSAM
    calls neither operator.

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


declare_operators()

from mobile_sam import SamPredictor, sam_model_registry  # noqa: E402


def load(checkpoint: str) -> SamPredictor:
    """Load the model as in its README: `.eval()` after loading applies the learned attention biases."""
    model = sam_model_registry["vit_t"](checkpoint=checkpoint)
    model.eval()
    return SamPredictor(model)
