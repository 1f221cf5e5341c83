"""Versions of the models in a repository on this machine: which there are, what each says of its weights, and their
links in the folder that Triton reads."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from utils import tensors

ENCODER, DECODER = "mobile_sam_encoder", "mobile_sam_decoder"
IN_ORDER = (ENCODER, DECODER, tensors.EVERYTHING, tensors.SEGMENT_COSTLY, tensors.SEGMENT, tensors.SEGMENT_CACHED)
"""All models, each behind those that it asks: in this order a new version is loaded, and in the other one unloaded."""
ASKS = dict.fromkeys(tensors.MODELS, (ENCODER, DECODER))
"""The models that a model asks."""
FILES = {
    ENCODER: ("model.onnx",),
    DECODER: ("model.onnx",),
    tensors.EVERYTHING: ("everything.py", "weights.json"),
    tensors.SEGMENT_COSTLY: ("model.py", "weights.json"),
    tensors.SEGMENT: ("model.py", "weights.json"),
    tensors.SEGMENT_CACHED: ("model.py", "weights.json"),
}
"""What a version of each model has at the least: without it Triton does not load it, or never ends to try."""


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


def missing(repository: Path, version: int) -> list[Path]:
    """Files that a version lacks; the models of one version belong together."""
    wanted = [repository / model / str(version) / file for model in IN_ORDER for file in FILES[model]]
    return [path for path in wanted if not path.is_file()]


def changes(repository: Path, deployed: Path, model: str) -> tuple[list[int], list[int]]:
    """The versions that the repository has and the folder that Triton reads has not, and the other way round."""
    there, linked = versions(repository, model), _shown(deployed, model)
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


def hide_broken(repository: Path, deployed: Path, hidden: Set[int] = frozenset()) -> set[int]:
    """Hide from Triton the versions that lack a file: it would not start with one.

    Args:
        repository: the model repository.
        deployed: the folder that Triton reads.
        hidden: versions that an earlier call has hidden; they are shown again if they lack nothing now.

    Returns:
        The versions that are hidden now.
    """
    found = hidden | {version for model in IN_ORDER for version in _shown(deployed, model)}
    broken = {version for version in found if missing(repository, version)}
    for model in IN_ORDER:
        for version in broken:
            unlink(deployed, model, version)
        for version in hidden - broken:
            link(repository, deployed, model, version)
    return broken


def stamps(deployed: Path) -> dict[Path, tuple[int, int] | None]:
    """Return inode and modification time (ns) of the files that Triton reads of each version; None if missing."""
    files = [
        deployed / model / str(version) / file
        for model in IN_ORDER
        for version in _shown(deployed, model)
        for file in FILES[model]
    ]
    return {path: _stamp(path) for path in files}


def replaced(stamps: Mapping[Path, tuple[int, int] | None]) -> bool:
    """Return whether a file has been replaced since `stamps` was made; one that has been removed does not count."""
    return any(_stamp(path) not in (stamp, None) for path, stamp in stamps.items())


def _shown(deployed: Path, model: str) -> list[int]:
    folder = deployed / model
    return [int(entry.name) for entry in folder.iterdir() if _is_version(entry.name)] if folder.is_dir() else []


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def _is_version(name: str) -> bool:
    return name.isdecimal() and not name.startswith("0")
