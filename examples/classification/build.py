"""Conversion of ResNet weights to the files that Triton loads.

python -m examples.classification.build --weights FILE --labels FILE --output examples/classification/model_repository
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from examples.classification.graph import build_graph
from mobile_sam_onnx import CheckpointError, ExportError, MobileSamOnnxError, load_checkpoint
from mobile_sam_onnx.identity import sha256_of
from mobile_sam_onnx.model import replace_file
from mobile_sam_onnx.tensors import StateDict

BUILDER_VERSION = "1"  # increase it when the graph or the other files change
CONFIG = Path("wide_resnet101_2/config.pbtxt")
NET = Path("wide_resnet101_2/1/model.onnx")
LABELS = Path("classification_labels/1/labels.txt")
RECORD = Path("classification_labels/1/weights.json")


@dataclass(frozen=True)
class Weights:
    """Name and identity of the weights."""

    name: str
    source: str
    """SHA-256 of the weights file, or a fixed text for weights that can be downloaded or generated."""


def export(state: StateDict, weights: Weights, labels: Path | None, repository: Path) -> None:
    """Write the network, the labels and, last, the record that marks the repository as complete.

    Args:
        state: tensors by torchvision name.
        weights: identity of the weights.
        labels: file with one label per line, in the order of the classes; None for `class 0` and so on.
        repository: model repository that already has the configurations.

    Raises:
        CheckpointError: a tensor is missing or has the wrong shape, or the number of classes differs from that of
            the labels or of config.pbtxt.
        ExportError: a file cannot be read or written.
    """
    model = build_graph(state)
    classes = model.graph.output[0].type.tensor_type.shape.dim[1].dim_value
    try:
        declared = text_format.Parse((repository / CONFIG).read_text(encoding="utf-8"), ModelConfig()).output[0].dims[0]
        if classes != declared:
            raise CheckpointError(f"expected {declared} classes as in {repository / CONFIG}, got {classes}")
        names = _read_labels(labels, classes)
        (repository / RECORD).unlink(missing_ok=True)
        replace_file(repository / NET, model.SerializeToString())
        replace_file(repository / LABELS, "".join(f"{name}\n" for name in names).encode())
        record = {"name": weights.name, "fingerprint": fingerprint(weights.source, labels)}
        replace_file(repository / RECORD, (json.dumps(record, indent=2) + "\n").encode())
    except OSError as error:
        raise ExportError(f"cannot read or write {error.filename}: {error.strerror or error}") from error


def current(repository: Path, source: str, labels: Path | None) -> bool:
    """Return whether the repository already has the export of this source and these labels."""
    try:
        record = json.loads((repository / RECORD).read_text(encoding="utf-8"))
        same = record["fingerprint"] == fingerprint(source, labels)
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return same and (repository / NET).is_file() and (repository / LABELS).is_file()


def fingerprint(source: str, labels: Path | None) -> str:
    """Return a hash of the inputs of an export. Raises OSError if the labels cannot be read."""
    labels_id = sha256_of(labels) if labels else "numbers"
    return hashlib.sha256(f"{BUILDER_VERSION}:{source}:{labels_id}".encode()).hexdigest()


def from_file(path: Path, labels: Path | None, repository: Path) -> Weights:
    """Export a weights file (`.pth`, `.safetensors` or `.npz`) unless the repository already has it.

    Raises:
        MobileSamOnnxError: as `export`, or the file is missing or invalid.
    """
    try:
        weights = Weights(path.name, sha256_of(path))
    except OSError as error:
        raise CheckpointError(f"cannot read the weights file {path}: {error.strerror or error}") from error
    if not current(repository, weights.source, labels):
        export(load_checkpoint(path), weights, labels, repository)
    return weights


def _read_labels(path: Path | None, classes: int) -> list[str]:
    if path is None:
        return [f"class {number}" for number in range(classes)]
    try:
        names = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"expected labels in UTF-8 in {path}: {error}") from error
    empty = sum(not name.strip() for name in names)
    if len(names) != classes or empty:
        got = f"{len(names)}, {empty} of them empty"
        raise CheckpointError(f"expected {classes} labels, one per line, in {path}, got {got}")
    return names


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m examples.classification.build", description=__doc__.split("\n")[0])
    parser.add_argument("--weights", type=Path, required=True, metavar="FILE", help=".pth, .safetensors or .npz")
    parser.add_argument("--labels", type=Path, metavar="FILE", help="one per line; default: class 0, class 1, ...")
    parser.add_argument("--output", type=Path, required=True, metavar="DIRECTORY", help="the model repository")
    options = parser.parse_args(arguments)
    try:
        weights = from_file(options.weights, options.labels, options.output)
    except MobileSamOnnxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{options.output} holds {weights.name}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
