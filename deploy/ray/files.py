"""File access: local folders, or URIs that pyarrow supports, such as `s3://`."""

from __future__ import annotations

import errno
import json
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from deploy.ray.names import folder_of, is_image, is_pattern, matcher
from deploy.ray.todo import BatchError, Image, canonical_request, distinct

MAX_PATHS_PER_QUERY = 10_000
"""Paths per query for size and modification time."""
LIST_SUFFIXES = (".txt", ".parquet")


@dataclass(frozen=True)
class Store:
    """A picklable file system."""

    system: fs.FileSystem
    prefix: str
    """Prefix of its paths: `s3://` and the like, empty for local files."""

    def read(self, path: str) -> bytes:
        """Read a file.

        Raises:
            OSError: the file cannot be read, or is empty.
        """
        with self.system.open_input_stream(self.path_in_system(path)) as stream:
            content: bytes = stream.read()
        if not content:
            raise OSError(errno.EINVAL, "expected a PNG, JPEG or WebP file, got an empty one", path)
        return content

    def write(self, path: str, content: Any) -> None:
        """Create or replace a file atomically. Object stores do this themselves."""
        target = self.path_in_system(path)
        if not isinstance(self.system, fs.LocalFileSystem):
            with self.system.open_output_stream(target) as stream:
                stream.write(content)
            return
        folder, _, name = target.rpartition("/")
        self.system.create_dir(folder)
        draft = f"{folder}/.{name}.{uuid.uuid4().hex}"
        try:
            with self.system.open_output_stream(draft) as stream:
                stream.write(content)
            self.system.move(draft, target)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise

    def exists(self, path: str) -> bool:
        """Return whether the file exists."""
        found: bool = self.system.get_file_info(self.path_in_system(path)).type == fs.FileType.File
        return found

    def delete(self, path: str) -> None:
        """Delete a file."""
        self.system.delete_file(self.path_in_system(path))

    def files_in(self, folder: str) -> list[str]:
        """Return the sorted paths of a folder's files, without hidden ones; empty if the folder does not exist."""
        entries = self.system.get_file_info(fs.FileSelector(self.path_in_system(folder), allow_not_found=True))
        return sorted(
            self.prefix + entry.path
            for entry in entries
            if entry.type == fs.FileType.File and not entry.base_name.startswith(".")
        )

    def path_in_system(self, path: str) -> str:
        """Return the path without the prefix.

        Raises:
            BatchError: the path belongs to another file system.
        """
        if not path.startswith(self.prefix) or (not self.prefix and "://" in path):
            raise BatchError(f"{path}: expected all files of a batch at {self.prefix or 'local paths'}")
        return path[len(self.prefix) :]


def open_store(place: str) -> tuple[Store, str]:
    """Return the file system of a path or URI, and the path without URI options.

    Raises:
        BatchError: the file system is unknown or unreachable.
    """
    scheme, mark, rest = place.partition("://")
    if not mark:
        return Store(fs.LocalFileSystem(), ""), os.path.abspath(place)  # noqa: PTH100 (patterns are no paths)
    if scheme == "file":
        return Store(fs.LocalFileSystem(), ""), rest
    rest, options, query = rest.partition("?")
    root = f"{scheme}://{rest.partition('/')[0]}"
    try:
        system, path = fs.FileSystem.from_uri(f"{root}{options}{query}")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise BatchError(f"{place}: cannot be opened: {' '.join(str(error).split())}") from None
    return Store(system, root.removesuffix(path.rstrip("/"))), f"{scheme}://{rest}"


def find_images(place: str, excluded: str, everything: dict[str, Any]) -> tuple[Store, list[Image]]:
    """Return the images of a batch, sorted by path.

    Args:
        place: a folder, an image, a pattern such as `photos/**/*.jpg`, a `.txt` file with one path per line, or a
            Parquet file with a column `path` and optionally `prompts`.
        excluded: folder to skip.
        everything: parameters for images without prompts.

    Raises:
        BatchError: there are no images, or the list is invalid.
    """
    store, path = open_store(place)
    default = canonical_request({"everything": everything})
    try:
        if path.lower().endswith(LIST_SUFFIXES):
            rows = _read_text(store, path) if path.endswith(".txt") else _read_table(store, path)
            rows = [(_absolute(name), request) for name, request in rows]
            if rows and "://" in rows[0][0]:  # the images may be in another file system than the list
                store, _ = open_store(rows[0][0])
            images = [image._replace(asked=request or default) for image, request in _with_file_info(store, rows)]
        else:
            images = [
                Image(store.prefix + entry.path, entry.size, entry.mtime_ns, default) for entry in _find(store, path)
            ]
    except OSError as error:
        raise BatchError(f"{place}: {' '.join(str(error).split())}") from None
    images = [image for image in images if not image.path.startswith(f"{excluded.rstrip('/')}/")]
    if not images:
        raise BatchError(f"{place}: no PNG, JPEG or WebP files found")
    return store, distinct(images)


def _find(store: Store, path: str) -> Iterator[fs.FileInfo]:
    """Yield the images of a folder, a pattern or a single path."""
    target = store.path_in_system(path)
    folder, matches = (folder_of(target), matcher(target)) if is_pattern(target) else (target, lambda _: True)
    info = store.system.get_file_info(folder.rstrip("/") or "/")
    if info.type == fs.FileType.NotFound:
        raise FileNotFoundError(errno.ENOENT, "no such file or folder")
    entries = [info]
    if info.type == fs.FileType.Directory:
        entries = store.system.get_file_info(fs.FileSelector(info.path, recursive=True))
    root = info.path if info.type == fs.FileType.Directory else info.path.rpartition("/")[0]
    for entry in entries:
        if entry.type == fs.FileType.File and is_image(entry.path, root) and matches(entry.path):
            yield entry


def _read_text(store: Store, path: str) -> list[tuple[str, str | None]]:
    text = store.read(path).decode()
    return [(line.strip(), None) for line in text.splitlines() if line.strip()]


def _read_table(store: Store, path: str) -> list[tuple[str, str | None]]:
    """Return paths and requests.

    Raises:
        BatchError: the file is not Parquet, or has wrong columns.
    """
    try:
        with store.system.open_input_file(store.path_in_system(path)) as source:
            table = pq.read_table(source)
    except pa.ArrowInvalid as error:
        raise BatchError(f"{path}: expected a Parquet file: {' '.join(str(error).split())}") from None
    if "path" not in table.column_names:
        raise BatchError(f"{path}: expected a column path and optionally prompts, got {', '.join(table.column_names)}")
    names = table["path"].to_pylist()
    if not all(isinstance(name, str) and name for name in names):
        raise BatchError(f"{path}: expected strings in the column path")
    if "prompts" not in table.column_names:
        return [(name, None) for name in names]
    return [
        (name, canonical_request({"prompts": _prompts(f"{path}: {name}", value)}))
        for name, value in zip(names, table["prompts"].to_pylist(), strict=True)
    ]


def _prompts(where: str, value: Any) -> list[dict[str, Any]]:
    """Return the prompts of an image from JSON or from a list of structs."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise BatchError(f"{where}: expected JSON in the column prompts: {error}") from None
    objects = [value] if isinstance(value, dict) else value
    if not isinstance(objects, list) or not objects or not all(isinstance(fields, dict) for fields in objects):
        form = '[{"pos_coords": [[x, y], ...], "box": [x0, y0, x1, y1]}, ...]'
        raise BatchError(f"{where}: expected prompts such as {form}, got {str(value)[:100]}")
    return [{name: field for name, field in fields.items() if field is not None} for fields in objects]


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.abspath(path)  # noqa: PTH100 (as in `open_store`)


def _with_file_info(store: Store, rows: Sequence[tuple[str, str | None]]) -> Iterator[tuple[Image, str | None]]:
    """Yield listed images with size and modification time, and their requests. Missing files fail when processed."""
    for start in range(0, len(rows), MAX_PATHS_PER_QUERY):
        chunk = rows[start : start + MAX_PATHS_PER_QUERY]
        infos = store.system.get_file_info([store.path_in_system(path) for path, _ in chunk])
        for (path, request), info in zip(chunk, infos, strict=True):
            found = info.type == fs.FileType.File
            yield Image(path, info.size if found else None, info.mtime_ns if found else None, ""), request
