"""Model repositories for measurements, one per set of weights, apart from the checkout's own."""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.service import ROOT
from mobile_sam_onnx import Preparer


def prepare(weights: str) -> Path:
    """Return a model repository with these weights, exported unless it exists from an earlier run.

    Args:
        weights: `official`, `builtin`, `random`, or the path of a checkpoint.

    Raises:
        MobileSamOnnxError: the weights are unavailable or unsuitable.
    """
    repository = ROOT / ".cache" / f"benchmark-{Path(weights).name}" / "model_repository"
    shutil.copytree(
        ROOT / "model_repository",
        repository,
        ignore=shutil.ignore_patterns("*.onnx", "weights.json", "__pycache__"),
        dirs_exist_ok=True,
    )
    Preparer(repository, print).prepare(weights)
    return repository
