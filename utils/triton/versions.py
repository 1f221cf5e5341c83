"""Versions of the models in a local repository: their files, their weights, and their links in
Triton's folder.
"""

import json
import secrets
import shutil
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from orchestrator import tensors
from utils.triton import snapshot

LOAD_ORDER = (
    tensors.ENCODER,
    tensors.DECODER,
    tensors.EVERYTHING,
    tensors.SEGMENT_COSTLY,
    tensors.SEGMENT,
    tensors.SEGMENT_CACHED,
)
"""All models, each after those that it calls. A new version loads in this order and unloads in the
reverse one."""
NETWORK_FILE, GPU_NETWORK_FILE = "model.onnx", "gpu.onnx"
"""Files of the networks, and of those that GPUs run. Older exports lack the latter; a CPU does not
need them, and on a GPU Triton names the missing file."""
REQUIRED_FILES = {
    tensors.ENCODER: (NETWORK_FILE,),
    tensors.DECODER: (NETWORK_FILE,),
    **dict.fromkeys(tensors.MODELS, ("model.py", "weights.json")),
}
"""Files that a version of each model must have: without one, Triton fails to load it or retries
forever."""


class MixedWeights(Exception):
    """Networks that are not those of the weights' record: embeddings of two networks would get
    the same name.
    """


def versions(repository: Path, model: str = tensors.SEGMENT) -> list[int]:
    """Return the versions of a model that have a folder, ascending."""
    return sorted(int(entry.name) for entry in _numbered(repository / model) if entry.is_dir())


def weights_record(repository: Path, version: int | None = None) -> dict[str, Any]:
    """Return the content of a version's `weights.json`, by default the newest.

    Empty if it is missing or invalid.
    """
    number = version or max(versions(repository), default=1)
    return read_record(repository / tensors.SEGMENT / str(number))


def read_record(folder: Path) -> dict[str, Any]:
    """Return the content of a folder's `weights.json`; empty if it is missing or invalid."""
    try:
        record = json.loads((folder / "weights.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def missing_files(repository: Path, version: int) -> list[Path]:
    """Return the required files that a version lacks, over all models."""
    missing = []
    for model in LOAD_ORDER:
        folder = repository / model / str(version)
        missing += [
            folder / file for file in REQUIRED_FILES[model] if not (folder / file).is_file()
        ]
    return missing


@dataclass(frozen=True)
class Deployment:
    """Triton's folder: links to versions that the service has taken from a repository.

    The snapshots are in `taken/`, beside Triton's folder. A version that is replaced in the
    repository gets a new snapshot, and the links say which one Triton reads.
    """

    repository: Path
    folder: Path

    def take(self, numbers: Iterable[int], models: Sequence[str] = LOAD_ORDER) -> dict[int, Path]:
        """Take a snapshot of versions of models, and return its folders by version.

        Raises:
            OSError: a file cannot be read or written.
            MixedWeights: a network is another one than `weights.json` says. Records of older
                exports do not say it.
        """
        snapshots: dict[int, Path] = {}
        try:
            with snapshot.unchanged(self.repository):
                for number in sorted(numbers):
                    snapshots[number] = self._taken / f"{number}-{secrets.token_hex(4)}"
                    snapshot.take(self.repository, number, list(models), snapshots[number])
                    self._check_networks(number, snapshots[number])
        except BaseException:
            for folder in snapshots.values():  # a part of it may fill the disk
                shutil.rmtree(folder, ignore_errors=True)
            raise
        return snapshots

    def _check_networks(self, number: int, taken: Path) -> None:
        """Check that the networks of a snapshot are those of its record; raises `MixedWeights`."""
        record = read_record(taken / tensors.SEGMENT)
        if name := snapshot.foreign_file(taken, record.get("networks", {})):
            model, _, file = name.partition("/")
            raise MixedWeights(
                f"{self.repository / model / str(number) / file} is not the file that was"
                f" written with the weights {record['name']}: write all files of a version"
                " with `make weights` or `python -m sam_onnx`"
            )

    def show(self, snapshots: Mapping[int, Path], models: Iterable[str] = LOAD_ORDER) -> None:
        """Link snapshots of versions in the models' folders, in place of earlier ones."""
        for model, (number, folder) in product(models, snapshots.items()):
            if (folder / model).is_dir():
                self.restore({(model, number): folder / model})

    def restore(self, links: Mapping[tuple[str, int], Path]) -> None:
        """Set links to folders of snapshots, by model and version, as `links` returns them."""
        for (model, number), target in links.items():
            # Triton lists the models' folders.
            fresh = self.folder.parent / f"link-{secrets.token_hex(4)}"
            fresh.symlink_to(target)
            fresh.replace(self.folder / model / str(number))

    def hide(self, numbers: Set[int], models: Iterable[str] = LOAD_ORDER) -> None:
        """Remove the links to versions of models."""
        for model, number in product(models, numbers):
            (self.folder / model / str(number)).unlink(missing_ok=True)

    def links(self) -> dict[tuple[str, int], Path]:
        """Return the folder in a snapshot that Triton reads, by model and version."""
        models = sorted(entry for entry in self.folder.iterdir() if entry.is_dir())
        folders = {}
        for model in models:
            for entry in _numbered(model):
                folders[model.name, int(entry.name)] = entry.readlink()
        return folders

    def changes(self) -> tuple[set[int], set[int]]:
        """Return the versions that were added to the repository or replaced in it, and those
        removed from it.
        """
        links = self.links()
        linked = {link for link in links if link[0] in LOAD_ORDER}
        existing: set[tuple[str, int]] = set()
        for model in LOAD_ORDER:
            existing.update((model, number) for number in versions(self.repository, model))
        replaced = {
            (model, number)
            for model, number in existing & linked
            if not snapshot.is_current(
                self.repository / model / str(number), links[model, number].parent, model
            )
        }
        new = {number for _, number in (existing - linked) | replaced}
        return new, {number for _, number in linked - existing}

    def damage(self) -> str:
        """Return which file differs from what was taken from the repository, or an empty string."""
        try:
            links = self.links()
            for link, target in sorted(links.items()):
                problem = snapshot.changed_file(target.parent, link[0])
                # An operator has loaded others meanwhile.
                if problem and self.links().get(link) != target:
                    return self.damage()
                if problem:
                    return problem
        except OSError:  # somebody has emptied the cache folder
            links = {}
        is_complete = {model for model, _ in links} >= set(LOAD_ORDER)
        return "" if is_complete else f"{self.folder} was emptied or removed"

    def remove_unused(self) -> None:
        """Remove the snapshots without a link."""
        used = {target.parent for target in self.links().values()}
        for folder in self._taken.iterdir():
            if folder not in used:
                shutil.rmtree(folder, ignore_errors=True)

    @property
    def _taken(self) -> Path:
        return self.folder.parent / "taken"


def _numbered(folder: Path) -> list[Path]:
    """Return the entries of a model's folder that are named like a version, links to removed
    ones among them.
    """
    entries = folder.iterdir() if folder.is_dir() else ()
    return [entry for entry in entries if entry.name.isdecimal() and not entry.name.startswith("0")]
