"""Model repositories with given weights."""

import shutil
from pathlib import Path

from harness.server import ROOT
from sam_onnx import Preparer


def make_repository(folder: Path, weights: str) -> Path:
    """Copy the model repository to a folder with model files of these weights; return the folder.

    Args:
        folder: a new folder, or one from an earlier call.
        weights: `official`, `builtin`, `random`, or the path of a checkpoint.

    Raises:
        SamOnnxError: the weights are unavailable or unsuitable.
    """
    generated = shutil.ignore_patterns("*.onnx", "*.onnx.data", "weights.json", "__pycache__")
    shutil.copytree(ROOT / "model_repository", folder, ignore=generated, dirs_exist_ok=True)
    Preparer(folder, print).prepare(weights)
    return folder


def prepare(weights: str) -> Path:
    """Return a model repository with these weights in `.cache`, apart from the checkout's own."""
    return make_repository(
        ROOT / ".cache" / f"benchmark-{Path(weights).name}" / "model_repository", weights
    )
