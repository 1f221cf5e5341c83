"""Versions of the models in a local repository: their files, their weights, and their links in Triton's folder."""

import contextlib
import json
from collections.abc import Iterable, Set
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from utils.triton import tensors

ENCODER, DECODER = "mobile_sam_encoder", "mobile_sam_decoder"
LOAD_ORDER = (ENCODER, DECODER, tensors.EVERYTHING, tensors.SEGMENT_COSTLY, tensors.SEGMENT, tensors.SEGMENT_CACHED)
"""All models, each after those that it calls. A new version loads in this order and unloads in the reverse one."""
REQUIRED_FILES = {
    ENCODER: ("model.onnx",),
    DECODER: ("model.onnx",),
    **dict.fromkeys(tensors.MODELS, ("model.py", "weights.json")),
}
"""Files that a version of each model must have: without one, Triton fails to load it or retries forever."""


def versions(repository: Path, model: str = tensors.SEGMENT) -> list[int]:
    """Return the versions of a model that have a folder, ascending."""
    return sorted(int(entry.name) for entry in _numbered(repository / model) if entry.is_dir())


def weights_record(repository: Path, version: int | None = None) -> dict[str, Any]:
    """Return the content of a version's `weights.json`, by default the newest; empty if it is missing or invalid."""
    try:
        number = version or max(versions(repository), default=1)
        path = repository / tensors.SEGMENT / str(number) / "weights.json"
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def missing_files(repository: Path, version: int) -> list[Path]:
    """Return the required files that a version lacks, over all models."""
    required = [repository / model / str(version) / file for model in LOAD_ORDER for file in REQUIRED_FILES[model]]
    return [path for path in required if not path.is_file()]


@dataclass(frozen=True)
class Deployment:
    """Triton's folder with links to the versions in a repository."""

    repository: Path
    folder: Path

    def show(self, versions: Set[int], models: Iterable[str] = LOAD_ORDER) -> None:
        """Link versions of models."""
        for model, version in product(models, versions):
            with contextlib.suppress(FileExistsError):  # another process was first
                (self.folder / model / str(version)).symlink_to(self.repository.resolve() / model / str(version))

    def hide(self, versions: Set[int], models: Iterable[str] = LOAD_ORDER) -> None:
        """Remove the links to versions of models."""
        for model, version in product(models, versions):
            (self.folder / model / str(version)).unlink(missing_ok=True)

    def changes(self, models: Iterable[str] = LOAD_ORDER) -> tuple[set[int], set[int]]:
        """Return the versions of any of the models that are new in the repository, and those removed from it."""
        existing = {(model, version) for model in models for version in versions(self.repository, model)}
        linked = self._linked(models)
        return {version for _, version in existing - linked}, {version for _, version in linked - existing}

    def sync(self, model: str) -> None:
        """Show Triton exactly the versions of a model that the repository has now."""
        new, removed = self.changes([model])
        self.show(new, [model])
        self.hide(removed, [model])

    def hide_incomplete(self, hidden: Set[int] = frozenset()) -> set[int]:
        """Hide versions that lack a file from Triton, which would not start with one; return them.

        Versions in `hidden`, by an earlier call, are shown again if they are complete now.
        """
        found = hidden | {version for _, version in self._linked(LOAD_ORDER)}
        incomplete = {version for version in found if missing_files(self.repository, version)}
        self.hide(incomplete)
        self.show(hidden - incomplete)
        return incomplete

    def file_stamps(self) -> set[tuple[Path, int, int]]:
        """Return the files that Triton reads of each version, with inode and modification time (ns)."""
        found = set()
        for model, files in REQUIRED_FILES.items():
            for path in (entry / file for entry in _numbered(self.folder / model) for file in files):
                with contextlib.suppress(OSError):  # removed
                    found.add((path, path.stat().st_ino, path.stat().st_mtime_ns))
        return found

    def any_replaced(self, stamps: Set[tuple[Path, int, int]]) -> bool:
        """Return whether a file was replaced since `file_stamps`; removed files and new versions do not count."""
        known = {path.parent for path, _, _ in stamps}
        return any(path.parent in known for path, _, _ in self.file_stamps() - stamps)

    def _linked(self, models: Iterable[str]) -> set[tuple[str, int]]:
        return {(model, int(entry.name)) for model in models for entry in _numbered(self.folder / model)}


def _numbered(folder: Path) -> list[Path]:
    """Return the entries of a model's folder that are named like a version, links to removed ones among them."""
    entries = folder.iterdir() if folder.is_dir() else ()
    return [entry for entry in entries if entry.name.isdecimal() and not entry.name.startswith("0")]
