"""Snapshots of model versions: what a service has taken from its repository, with the checksum of
each file.

A service serves what it started with, even if another command replaces the weights in the
repository meanwhile. Large files are hard links, which cost neither time nor space. Commands that
replace a file (`sam_onnx.repository`) leave the old one to its hard links. A program that writes
into the file itself changes the snapshot too, which the checksums show before Triton starts again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

CHECKSUMS = "checksums.json"
"""Name of the file with the record of each file of a snapshot, by its path in the snapshot."""
MIN_LINKED_BYTES = 2**20
"""Size from which a file is linked. Smaller ones are copied: people edit those in place."""
MAX_COPIED_BYTES = 64 * 2**20
"""Size above which a file that this user cannot write is linked by its name, where hard links are
refused.

In containers, the copy of an encoder of gigabytes could fill a disk in memory. The decoder, which
callers can download, is smaller.
"""
CHUNK_BYTES = 2**20


@dataclass(frozen=True)
class FileRecord:
    """Content of a file in a snapshot, and the file that it was taken from."""

    sha256: str
    inode: int
    modified_ns: int
    size: int


def take(repository: Path, version: int, models: list[str], folder: Path) -> None:
    """Fill a new folder with a version of models: `model/file`, and `checksums.json`.

    Raises:
        OSError: a file cannot be read or written.
    """
    folder.mkdir(parents=True)
    records = {}
    for model in models:
        source = repository / model / str(version)
        if not source.is_dir():
            continue
        (folder / model).mkdir()
        for file in _files(source):
            copy = folder / model / file.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            status = file.stat()
            _link_or_copy(file, copy)
            records[str(copy.relative_to(folder))] = FileRecord(
                _sha256(copy), status.st_ino, status.st_mtime_ns, status.st_size
            )
    content = {name: asdict(record) for name, record in records.items()}
    (folder / CHECKSUMS).write_text(json.dumps(content, indent=2), encoding="utf-8")


def changed_file(folder: Path, model: str) -> str:
    """Return what is wrong with a model's files in a snapshot, or an empty string if all are as
    taken.
    """
    try:
        records = _records_of(folder, model)
        names = {f"{model}/{file.relative_to(folder / model)}" for file in _files(folder / model)}
        for name in sorted(records.keys() ^ names):
            return f"{folder / name} was {'removed' if name in records else 'added'}"
        for name, record in records.items():
            if _sha256(folder / name) != record.sha256:
                return f"{folder / name} has changed"
    except (OSError, ValueError, TypeError) as error:
        return f"{getattr(error, 'filename', None) or folder / CHECKSUMS} cannot be read"
    return ""


def foreign_file(folder: Path, expected: Mapping[str, str]) -> str:
    """Return which file of a snapshot, as `model/file`, has not the expected SHA-256.

    An empty string if there is none.

    Raises:
        OSError: the record of the snapshot cannot be read.
    """
    records = json.loads((folder / CHECKSUMS).read_text(encoding="utf-8"))
    for name, sha256 in expected.items():
        if name in records and records[name]["sha256"] != sha256:
            return name
    return ""


def is_current(source: Path, folder: Path, model: str) -> bool:
    """Return whether a version's folder in the repository still has the files that the snapshot
    was taken from.
    """
    try:
        records = _records_of(folder, model)
        now = {f"{model}/{file.relative_to(source)}": file.stat() for file in _files(source)}
    except (OSError, ValueError, TypeError):
        return False
    if now.keys() != records.keys():
        return False
    return all(
        (status.st_ino, status.st_mtime_ns, status.st_size)
        == (records[name].inode, records[name].modified_ns, records[name].size)
        for name, status in now.items()
    )


@contextlib.contextmanager
def unchanged(repository: Path) -> Iterator[None]:
    """Keep `sam_onnx` from writing weights to a repository; waits while it does."""
    descriptor = os.open(repository, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def _records_of(folder: Path, model: str) -> dict[str, FileRecord]:
    """Return the records of a model's files.

    Raise OSError, ValueError or TypeError if they cannot be read.
    """
    content = json.loads((folder / CHECKSUMS).read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise TypeError(f"expected an object, got {type(content).__name__}")
    records = {name: FileRecord(**record) for name, record in content.items()}
    return {name: record for name, record in records.items() if name.split("/")[0] == model}


def _files(folder: Path) -> list[Path]:
    """Return all files below a folder, without Python's caches and unfinished files."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in files if path.name[0] != "." and path.parent.name != "__pycache__"]


def _link_or_copy(file: Path, copy: Path) -> None:
    file = file.resolve()
    size = file.stat().st_size
    if size >= MIN_LINKED_BYTES:
        with contextlib.suppress(OSError):  # another disk, or another user's file
            os.link(file, copy)
            return
    writable = os.access(file, os.W_OK) or os.access(file.parent, os.W_OK)
    if size > MAX_COPIED_BYTES and not writable:
        copy.symlink_to(file)
    else:
        shutil.copy2(file, copy)


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while chunk := opened.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
