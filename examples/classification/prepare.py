"""Create the example's model files from the environment variables WEIGHTS and LABELS.

python -m examples.classification.prepare

WEIGHTS is `auto` (default: `official`, or `random` if the download fails), `official` (torchvision's wide_resnet101_2,
255 MB), `random` (an untrained narrow network of the same family), or the path of a weights file.
LABELS is the path of a file with the class names, one per line.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from examples.classification.architecture import NARROW, random_state
from examples.classification.build import Weights, current, export, from_file
from mobile_sam_onnx import DownloadError, MobileSamOnnxError, load_checkpoint
from mobile_sam_onnx.download import cache_directory, download
from mobile_sam_onnx.sources import Source

REPOSITORY = Path(__file__).with_name("model_repository")
OFFICIAL = Source(
    # IMAGENET1K_V1. The file name contains the only published part of its SHA-256, which torchvision checks too.
    url="https://download.pytorch.org/models/wide_resnet101_2-32ee1156.pth",
    size=254_695_146,
    sha256="32ee1156",
)


def prepare(choice: str, labels: Path | None, repository: Path) -> None:
    """Export the chosen weights unless the repository already has them.

    Args:
        choice: WEIGHTS as above.
        labels: LABELS as above.
        repository: model repository that already has the configurations.

    Raises:
        MobileSamOnnxError: the weights or labels are unavailable or invalid, or a file cannot be written.
    """
    if labels is None:
        _report("note: no LABELS file: classes are named by number, class 0 and so on")
    if choice not in ("auto", "official", "random"):
        weights = from_file(Path(choice), labels, repository)
    elif choice == "random":
        weights = _random(labels, repository)
    else:
        try:
            weights = _official(labels, repository)
        except DownloadError as error:
            if choice == "official":
                raise
            _report(f"warning: {error}; serving an untrained narrow network instead, whose answers are meaningless")
            weights = _random(labels, repository)
    _report(f"{repository} holds {weights.name} weights")


def _official(labels: Path | None, repository: Path) -> Weights:
    weights = Weights("official", f"official {OFFICIAL.sha256}")
    if not current(repository, weights.source, labels):
        export(load_checkpoint(download(OFFICIAL, cache_directory())), weights, labels, repository)
    return weights


def _random(labels: Path | None, repository: Path) -> Weights:
    weights = Weights("random", "random narrow 0")
    if not current(repository, weights.source, labels):
        export(random_state(NARROW), weights, labels, repository)
    return weights


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Run the command and return its exit status."""
    labels = os.environ.get("LABELS")
    try:
        prepare(os.environ.get("WEIGHTS") or "auto", Path(labels) if labels else None, REPOSITORY)
    except MobileSamOnnxError as error:
        _report(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
