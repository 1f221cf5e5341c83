"""Official predictor of the package `mobilesam-mirror`, in the peers' environment."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

_LIBRARY = torch.library.Library("torchvision", "FRAGMENT")
"""Owner of the declared operators; they live as long as it does."""


def declare_operators() -> None:
    """Declare the operators that `import torchvision` needs, unless its compiled library provides
    them.

    The compiled library loads only with the PyTorch build that it was linked against, often not a
    CPU build. Of MobileSAM, only the generator of all masks calls one, for which
    `without_duplicates` does the work.

    Raises:
        ModuleNotFoundError: torchvision is not installed.
    """
    package = importlib.util.find_spec("torchvision")
    if package is None or package.origin is None:
        raise ModuleNotFoundError(
            "torchvision is not installed: run `make env-peers`", name="torchvision"
        )
    try:
        torch.ops.load_library(str(Path(package.origin).with_name("_C.so")))
    except OSError:
        for operator in ("nms", "qnms"):
            _LIBRARY.define(
                f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )


declare_operators()

from mobile_sam import (  # noqa: E402
    SamAutomaticMaskGenerator,
    SamPredictor,
    automatic_mask_generator,
    sam_model_registry,
)
from torchvision.ops import box_iou  # noqa: E402


def load(checkpoint: str) -> SamPredictor:
    """Load the model as in its README: `.eval()` after loading applies the learned attention
    biases.
    """
    model = sam_model_registry["vit_t"](checkpoint=checkpoint)
    model.eval()
    return SamPredictor(model)


def mask_generator(predictor: SamPredictor, points_per_side: int) -> SamAutomaticMaskGenerator:
    """Return the generator of all masks of an image."""
    return SamAutomaticMaskGenerator(predictor.model, points_per_side=points_per_side)


def without_duplicates(
    boxes: torch.Tensor, scores: torch.Tensor, _: torch.Tensor, iou_threshold: float
) -> torch.Tensor:
    """Do the work of torchvision's `batched_nms`, which needs its compiled library, for boxes of
    one category.
    """
    order = scores.argsort(descending=True)
    duplicates = box_iou(boxes[order], boxes[order]) > iou_threshold
    dropped, keep = torch.zeros(len(order), dtype=torch.bool), []
    for index in range(len(order)):
        if not dropped[index]:
            keep.append(index)
            dropped |= duplicates[index]
    return order[keep]


automatic_mask_generator.batched_nms = without_duplicates
