"""Where images lie and results go: a folder of this machine, or a place that pyarrow knows, as `s3://`."""

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
from deploy.ray.todo import BatchError, Image, distinct, question

ASKED_AT_ONCE = 10_000
"""Paths whose size and time are asked for together."""
LISTS = (".txt", ".parquet")


@dataclass(frozen=True)
class Store:
    """A file system. It can be sent to other machines."""

    system: fs.FileSystem
    prefix: str
    """What stands before its own paths where people read them: `s3://`, or nothing for this machine's."""

    def read(self, path: str) -> bytes:
        """The bytes of a file.

        Raises:
            OSError: it cannot be read, or is empty.
        """
        with self.system.open_input_stream(self.own(path)) as stream:
            content: bytes = stream.read()
        if not content:
            raise OSError(errno.EINVAL, "expected a PNG, JPEG or WebP file, got an empty one", path)
        return content

    def write(self, path: str, content: Any) -> None:
        """Make a file, whole or not at all, or replace one; object stores show one when it is whole by themselves."""
        place = self.own(path)
        if not isinstance(self.system, fs.LocalFileSystem):
            with self.system.open_output_stream(place) as stream:
                stream.write(content)
            return
        folder, _, name = place.rpartition("/")
        self.system.create_dir(folder)
        draft = f"{folder}/.{name}.{uuid.uuid4().hex}"
        try:
            with self.system.open_output_stream(draft) as stream:
                stream.write(content)
            self.system.move(draft, place)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise

    def is_there(self, path: str) -> bool:
        """Whether there is such a file."""
        found: bool = self.system.get_file_info(self.own(path)).type == fs.FileType.File
        return found

    def delete(self, path: str) -> None:
        """Delete a file."""
        self.system.delete_file(self.own(path))

    def files_in(self, folder: str) -> list[str]:
        """The files of a folder, which need not be there, without those whose names begin with a dot; sorted."""
        entries = self.system.get_file_info(fs.FileSelector(self.own(folder), allow_not_found=True))
        return sorted(
            self.prefix + entry.path
            for entry in entries
            if entry.type == fs.FileType.File and not entry.base_name.startswith(".")
        )

    def own(self, path: str) -> str:
        """The path as the file system has it.

        Raises:
            BatchError: it lies elsewhere.
        """
        if not path.startswith(self.prefix) or (not self.prefix and "://" in path):
            raise BatchError(f"{path}: expected all of a batch to lie at {self.prefix or 'paths of this machine'}")
        return path[len(self.prefix) :]


def open_store(place: str) -> tuple[Store, str]:
    """The file system that a path or URI is of, and the path without the options that a URI may end in.

    Raises:
        BatchError: there is no such file system here, or it cannot be reached.
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


def find_images(place: str, without: str, everything: dict[str, Any]) -> tuple[Store, list[Image]]:
    """The images of a batch, in the order of their paths.

    Args:
        place: a folder, an image, a pattern such as `photos/**/*.jpg`, a `.txt` file with a path a line, or a Parquet
            file with a column `path` and, where not everything is to be found, a column `prompts`.
        without: a folder that is left out, should it lie there.
        everything: parameters, where nothing else is asked.

    Raises:
        BatchError: there is none, or a list cannot be used.
    """
    store, path = open_store(place)
    asked = question({"everything": everything})
    try:
        if path.lower().endswith(LISTS):
            rows = _lines(store, path) if path.endswith(".txt") else _table(store, path)
            rows = [(_absolute(name), questions) for name, questions in rows]
            if rows and "://" in rows[0][0]:  # the list itself may lie here, and the images there
                store, _ = open_store(rows[0][0])
            images = [image._replace(asked=of or asked) for image, of in _with_facts(store, rows)]
        else:
            images = [
                Image(store.prefix + entry.path, entry.size, entry.mtime_ns, asked) for entry in _listed(store, path)
            ]
    except OSError as error:
        raise BatchError(f"{place}: {' '.join(str(error).split())}") from None
    images = [image for image in images if not image.path.startswith(f"{without.rstrip('/')}/")]
    if not images:
        raise BatchError(f"{place}: expected PNG, JPEG or WebP files, found none")
    return store, distinct(images)


def _listed(store: Store, path: str) -> Iterator[fs.FileInfo]:
    """What a folder, a pattern or the path of an image stands for."""
    own = store.own(path)
    folder, meant = (folder_of(own), matcher(own)) if is_pattern(own) else (own, lambda _: True)
    info = store.system.get_file_info(folder.rstrip("/") or "/")
    if info.type == fs.FileType.NotFound:
        raise FileNotFoundError(errno.ENOENT, "there is no such file or folder")
    entries = [info]
    if info.type == fs.FileType.Directory:
        entries = store.system.get_file_info(fs.FileSelector(info.path, recursive=True))
    below = info.path if info.type == fs.FileType.Directory else info.path.rpartition("/")[0]
    for entry in entries:
        if entry.type == fs.FileType.File and is_image(entry.path, below) and meant(entry.path):
            yield entry


def _lines(store: Store, path: str) -> list[tuple[str, str | None]]:
    text = store.read(path).decode()
    return [(line.strip(), None) for line in text.splitlines() if line.strip()]


def _table(store: Store, path: str) -> list[tuple[str, str | None]]:
    """Paths and questions.

    Raises:
        BatchError: the file is no Parquet, or has no such columns.
    """
    try:
        with store.system.open_input_file(store.own(path)) as source:
            table = pq.read_table(source)
    except pa.ArrowInvalid as error:
        raise BatchError(f"{path}: expected a Parquet file: {' '.join(str(error).split())}") from None
    if "path" not in table.column_names:
        raise BatchError(f"{path}: expected a column path, and perhaps prompts, got {', '.join(table.column_names)}")
    names = table["path"].to_pylist()
    if not all(isinstance(name, str) and name for name in names):
        raise BatchError(f"{path}: expected texts in the column path")
    if "prompts" not in table.column_names:
        return [(name, None) for name in names]
    return [
        (name, question({"prompts": _prompts(f"{path}: {name}", value)}))
        for name, value in zip(names, table["prompts"].to_pylist(), strict=True)
    ]


def _prompts(where: str, value: Any) -> list[dict[str, Any]]:
    """The objects to find on an image: JSON text, or a list of structs."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise BatchError(f"{where}: expected JSON in the column prompts: {error}") from None
    objects = [value] if isinstance(value, dict) else value
    if not isinstance(objects, list) or not objects or not all(isinstance(one, dict) for one in objects):
        form = '[{"pos_coords": [[x, y], ...], "box": [x0, y0, x1, y1]}, ...]'
        raise BatchError(f"{where}: expected prompts such as {form}, got {str(value)[:100]}")
    return [{name: given for name, given in one.items() if given is not None} for one in objects]


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.abspath(path)  # noqa: PTH100 (as in `open_store`)


def _with_facts(store: Store, rows: Sequence[tuple[str, str | None]]) -> Iterator[tuple[Image, str | None]]:
    """Listed images with size and time of their files; what is not there is told when it is its turn."""
    for start in range(0, len(rows), ASKED_AT_ONCE):
        some = rows[start : start + ASKED_AT_ONCE]
        for (path, asked), info in zip(some, store.system.get_file_info([store.own(p) for p, _ in some]), strict=True):
            there = info.type == fs.FileType.File
            yield Image(path, info.size if there else None, info.mtime_ns if there else None, ""), asked
