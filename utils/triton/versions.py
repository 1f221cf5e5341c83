"""Versions of the models in a local repository: their files, their weights, and their links in Triton's folder."""

import contextlib
import json
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from utils.triton import tensors

ENCODER, DECODER = "mobile_sam_encoder", "mobile_sam_decoder"
LOAD_ORDER = (ENCODER, DECODER, tensors.EVERYTHING, tensors.SEGMENT_COSTLY, tensors.SEGMENT, tensors.SEGMENT_CACHED)
"""All models, each after those that it calls. A new version loads in this order and unloads in the reverse one."""
CALLS = dict.fromkeys(tensors.MODELS, (ENCODER, DECODER))
"""Models that each model calls."""
REQUIRED_FILES = {
    ENCODER: ("model.onnx",),
    DECODER: ("model.onnx",),
    **dict.fromkeys(tensors.MODELS, ("model.py", "weights.json")),
}
"""Files that a version of each model must have: without one, Triton fails to load it or retries forever."""


def versions(repository: Path, model: str = tensors.SEGMENT) -> list[int]:
    """Return the versions of a model that have a folder, ascending."""
    folder = repository / model
    if not folder.is_dir():
        return []
    return sorted(int(entry.name) for entry in folder.iterdir() if _is_version(entry.name) and entry.is_dir())


def newest(repository: Path) -> int:
    """Return the version that Triton uses by default; 1 for a repository without versions."""
    return max(versions(repository), default=1)


def weights_record(repository: Path, version: int) -> dict[str, Any] | None:
    """Return the content of a version's `weights.json`, or None if it is missing or invalid."""
    try:
        path = repository / tensors.SEGMENT / str(version) / "weights.json"
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def missing_files(repository: Path, version: int) -> list[Path]:
    """Return the required files that a version lacks, over all models."""
    required = [repository / model / str(version) / file for model in LOAD_ORDER for file in REQUIRED_FILES[model]]
    return [path for path in required if not path.is_file()]


def changes(repository: Path, deployed: Path, model: str) -> tuple[list[int], list[int]]:
    """Return a model's versions that are new in the repository, and those removed from it, as against the links."""
    existing, linked = versions(repository, model), _linked(deployed, model)
    return [new for new in existing if new not in linked], [gone for gone in linked if gone not in existing]


def link(repository: Path, deployed: Path, model: str, version: int) -> None:
    """Show Triton a version of the repository."""
    with contextlib.suppress(FileExistsError):  # another process was first
        (deployed / model / str(version)).symlink_to(repository.resolve() / model / str(version))


def unlink(deployed: Path, model: str, version: int) -> None:
    """Hide a version from Triton."""
    (deployed / model / str(version)).unlink(missing_ok=True)


def sync_links(repository: Path, deployed: Path, model: str) -> None:
    """Show Triton exactly the versions of a model that the repository has now."""
    new, removed = changes(repository, deployed, model)
    for version in new:
        link(repository, deployed, model, version)
    for version in removed:
        unlink(deployed, model, version)


def hide_incomplete(repository: Path, deployed: Path, hidden: Set[int] = frozenset()) -> set[int]:
    """Hide versions that lack a file from Triton, which would not start with one; return them.

    Versions in `hidden`, by an earlier call, are shown again if they are complete now.
    """
    found = hidden | {version for model in LOAD_ORDER for version in _linked(deployed, model)}
    incomplete = {version for version in found if missing_files(repository, version)}
    for model in LOAD_ORDER:
        for version in incomplete:
            unlink(deployed, model, version)
        for version in hidden - incomplete:
            link(repository, deployed, model, version)
    return incomplete


def file_stamps(deployed: Path) -> dict[Path, tuple[int, int] | None]:
    """Return inode and modification time (ns) of the files that Triton reads of each version; None if missing."""
    files = [
        deployed / model / str(version) / file
        for model in LOAD_ORDER
        for version in _linked(deployed, model)
        for file in REQUIRED_FILES[model]
    ]
    return {path: _stamp(path) for path in files}


def any_replaced(stamps: Mapping[Path, tuple[int, int] | None]) -> bool:
    """Return whether a file was replaced since `file_stamps`; removed files do not count."""
    return any(_stamp(path) not in (stamp, None) for path, stamp in stamps.items())


def _linked(deployed: Path, model: str) -> list[int]:
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
