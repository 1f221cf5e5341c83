"""Create the example's model files from the environment variables WEIGHTS and LABELS.

python -m examples.classification.prepare

WEIGHTS is `auto` (default: `official`, or `random` if the download fails), `official`
(torchvision's wide_resnet101_2, 255 MB), `random` (an untrained narrow network of the same family),
or the path of a weights file (`.pth`, `.safetensors` or `.npz`). LABELS is the path of a file with
the class names, one per line.
"""

import hashlib
import json
import os
import sys
from pathlib import Path

from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from examples.classification.graph import build_graph
from examples.classification.untrained import NARROW, random_state
from sam_onnx import CheckpointError, DownloadError, ExportError, SamOnnxError
from sam_onnx.checkpoint import load_checkpoint
from sam_onnx.download import cache_directory, download
from sam_onnx.repository import replace_file, sha256_of
from sam_onnx.sources import WebFile
from sam_onnx.tensors import StateDict

BUILDER_VERSION = "3"  # increase it when the graph or the other files change
REPOSITORY = Path(__file__).with_name("model_repository")
CONFIG = Path("onnx_model/config.pbtxt")
NET = Path("onnx_model/1/model.onnx")
LABELS = Path("classification_labels/1/labels.txt")
RECORD = Path("classification_labels/1/weights.json")
OFFICIAL = WebFile(
    # IMAGENET1K_V1. The file name contains the only published part of its SHA-256, which
    # torchvision checks too.
    url="https://download.pytorch.org/models/wide_resnet101_2-32ee1156.pth",
    size=254_695_146,
    sha256="32ee1156",
)


def prepare(choice: str, labels: Path | None, repository: Path) -> None:
    """Export the chosen weights unless the repository already has them.

    Args:
        choice: WEIGHTS as above.
        labels: LABELS as above; without a file, classes are named by number.
        repository: model repository that already has the configurations.

    Raises:
        CheckpointError: a tensor is missing or has the wrong shape, or the labels or config.pbtxt
            have another number of classes.
        DownloadError: the official weights are not available.
        ExportError: a file cannot be read or written.
    """
    if labels is None:
        _report("note: no LABELS file: classes are named by number, class 0 and so on")
    try:
        name = _export("official" if choice == "auto" else choice, labels, repository)
    except DownloadError as error:
        if choice != "auto":
            raise
        _report(
            f"warning: {error}; serving an untrained narrow network instead; its answers are"
            " meaningless"
        )
        name = _export("random", labels, repository)
    except OSError as error:
        raise ExportError(
            f"cannot read or write {error.filename}: {error.strerror or error}"
        ) from error
    _report(f"{repository} holds {name} weights")


def _export(choice: str, labels: Path | None, repository: Path) -> str:
    """Write the network, the labels and, last, the record of both, unless the record is the
    same; return the name.
    """
    known = {"official": OFFICIAL.sha256, "random": "narrow 0"}
    name, weights = (
        (choice, known[choice]) if choice in known else (Path(choice).name, sha256_of(Path(choice)))
    )
    source = f"{BUILDER_VERSION}:{name}:{weights}:{sha256_of(labels) if labels else 'numbers'}"
    record = (
        json.dumps(
            {"name": name, "fingerprint": hashlib.sha256(source.encode()).hexdigest()}, indent=2
        )
        + "\n"
    )
    files = [repository / file for file in (NET, LABELS, RECORD)]
    if (
        all(file.is_file() for file in files)
        and (repository / RECORD).read_text(encoding="utf-8") == record
    ):
        return name
    if choice == "random":
        state: StateDict = random_state(NARROW)
    else:
        state = load_checkpoint(
            download(OFFICIAL, cache_directory()) if choice == "official" else Path(choice)
        )
    model = build_graph(state)
    classes = model.graph.output[0].type.tensor_type.shape.dim[1].dim_value
    declared = (
        text_format.Parse((repository / CONFIG).read_text(encoding="utf-8"), ModelConfig())
        .output[0]
        .dims[0]
    )
    if classes != declared:
        raise CheckpointError(
            f"expected {declared} classes as in {repository / CONFIG}, got {classes}"
        )
    names = _read_labels(labels, classes)
    if choice == "random":
        names = [f"{name} (untrained)" for name in names]
    (repository / RECORD).unlink(missing_ok=True)
    contents = (
        model.SerializeToString(),
        "".join(f"{name}\n" for name in names).encode(),
        record.encode(),
    )
    for file, content in zip(files, contents, strict=True):
        replace_file(file, content)
    return name


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


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Run the command and return its exit status."""
    labels = os.environ.get("LABELS")
    try:
        prepare(os.environ.get("WEIGHTS") or "auto", Path(labels) if labels else None, REPOSITORY)
    except SamOnnxError as error:
        _report(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
