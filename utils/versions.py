"""Versions of the models in a repository on this machine: which there are, what each says of its weights, and their
links in the folder that Triton reads."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from utils import tensors

ENCODER, DECODER = "mobile_sam_encoder", "mobile_sam_decoder"
IN_ORDER = (ENCODER, DECODER, tensors.EVERYTHING, tensors.SEGMENT, tensors.SEGMENT_CACHED)
"""All models, each behind those that it asks: in this order a new version is loaded, and in the other one unloaded."""
ASKS = dict.fromkeys(tensors.MODELS, (ENCODER, DECODER))
"""The models that a model asks."""
FILES = {ENCODER: "model.onnx", DECODER: "model.onnx", **dict.fromkeys(tensors.MODELS, "weights.json")}
"""What makes a version of each model one that can be loaded."""


def versions(repository: Path, model: str = tensors.SEGMENT) -> list[int]:
    """The versions of a model that have a folder, in rising order."""
    folder = repository / model
    if not folder.is_dir():
        return []
    return sorted(int(entry.name) for entry in folder.iterdir() if _is_version(entry.name) and entry.is_dir())


def newest(repository: Path) -> int:
    """What Triton asks where a request names no version; 1 where there is none yet."""
    return max(versions(repository), default=1)


def record(repository: Path, version: int) -> dict[str, Any] | None:
    """The `weights.json` of a version; None where there is none, or no such document."""
    try:
        path = repository / tensors.SEGMENT / str(version) / "weights.json"
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def missing(repository: Path) -> list[Path]:
    """Files without which Triton could not load a version that is there, or version 1 where none is."""
    wanted = [
        repository / model / str(version) / file
        for version in versions(repository) or [1]
        for model, file in FILES.items()
    ]
    return [path for path in wanted if not path.is_file()]


def changes(repository: Path, deployed: Path, model: str) -> tuple[list[int], list[int]]:
    """The versions that the repository has and the folder that Triton reads has not, and the other way round."""
    there = versions(repository, model)
    linked = [int(entry.name) for entry in (deployed / model).iterdir() if _is_version(entry.name)]
    return [new for new in there if new not in linked], [gone for gone in linked if gone not in there]


def link(repository: Path, deployed: Path, model: str, version: int) -> None:
    """Show Triton a version of the repository."""
    with contextlib.suppress(FileExistsError):  # another process was first
        (deployed / model / str(version)).symlink_to(repository.resolve() / model / str(version))


def unlink(deployed: Path, model: str, version: int) -> None:
    """Show Triton a version no longer."""
    (deployed / model / str(version)).unlink(missing_ok=True)


def follow(repository: Path, deployed: Path, model: str) -> None:
    """Show Triton the versions of a model that the repository has now."""
    new, gone = changes(repository, deployed, model)
    for version in new:
        link(repository, deployed, model, version)
    for version in gone:
        unlink(deployed, model, version)


def _is_version(name: str) -> bool:
    return name.isdecimal() and not name.startswith("0")
