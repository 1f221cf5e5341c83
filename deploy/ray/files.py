"""Images of a batch, in local folders or at URIs that pyarrow supports, such as `s3://`."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyarrow import fs

from deploy.ray.errors import BatchError
from deploy.ray.plan import Image
from mobile_sam_client.batches import check_prompts
from mobile_sam_client.datasets import DatasetFormat, is_image, read_dataset

LIST_SUFFIXES = (".txt", ".parquet")


@dataclass(frozen=True)
class Store:
    """A picklable file system."""

    system: fs.FileSystem
    prefix: str
    """Prefix of its paths: `s3://` and the like, empty for local files."""

    def inside(self, path: str) -> str:
        """Return the path as the file system takes it."""
        return path.removeprefix(self.prefix)

    def read(self, path: str) -> bytes:
        """Read a file."""
        with self.system.open_input_stream(self.inside(path)) as stream:
            return bytes(stream.read())

    def sha256(self, path: str) -> str | None:
        """Return the SHA-256 of a file, None if it cannot be read."""
        with suppress(OSError):
            return hashlib.sha256(self.read(path)).hexdigest()
        return None

    def write(self, path: str, content: Any) -> None:
        """Create or replace a file atomically. Object stores do this themselves.

        Raises:
            BatchError: a local file cannot be written.
        """
        if isinstance(self.system, fs.LocalFileSystem):
            _write_local(Path(path), content)
        else:
            with self.system.open_output_stream(self.inside(path)) as stream:
                stream.write(content)


def open_store(place: str) -> tuple[Store, str]:
    """Return the file system of a path or URI, and the absolute path without URI options."""
    scheme, _, rest = place.rpartition("://")
    if scheme in {"", "file"}:
        return Store(fs.LocalFileSystem(), ""), _absolute(rest)
    rest, mark, options = rest.partition("?")
    root = f"{scheme}://{rest.partition('/')[0]}"
    system, path = fs.FileSystem.from_uri(f"{root}{mark}{options}")
    return Store(system, root.removesuffix(path.rstrip("/"))), f"{scheme}://{rest.rstrip('/')}"


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.abspath(path)  # noqa: PTH100 (patterns are no paths)


def _write_local(path: Path, content: Any) -> None:
    """Write a temporary file that replaces another one."""
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_bytes(content)
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise BatchError(f"cannot write {path}: {error.strerror or error}") from error


def find_images(
    place: str,
    excluded: str,
    everything: dict[str, Any],
) -> tuple[Store, dict[str, Image]]:
    """Return the images of a batch by path.

    Args:
        place: a folder, an image, a pattern such as `photos/**/*.jpg`, a `.txt` file with one path
            per line, or a Parquet file with a column `path` and optionally `prompts`.
        excluded: folder to skip.
        everything: parameters for images without prompts.

    Raises:
        BatchError: there are no images, or the list is invalid.
    """
    store, path = open_store(place)
    prompts_by_path: list[tuple[str, list[dict[str, Any]] | None]]
    if path.lower().endswith(LIST_SUFFIXES):
        prompts_by_path = list(_read_list(store, path))
        if prompts_by_path:
            # The images may be in another file system than the list.
            first_path, _ = prompts_by_path[0]
            store, _ = open_store(first_path)
        entries = store.system.get_file_info([store.inside(name) for name, _ in prompts_by_path])
    else:
        entries = [entry for entry in _list(store, path) if is_image(entry.path)]
        prompts_by_path = [(store.prefix + entry.path, None) for entry in entries]
    images: dict[str, Image] = {}
    for (name, prompts), entry in zip(prompts_by_path, entries, strict=True):
        request = {"prompts": prompts} if prompts else {"everything": everything}
        image = _image(name, entry, request)
        if images.setdefault(name, image).asked != image.asked:
            raise BatchError(f"{name}: listed twice with different prompts")
    for name in list(images):
        if name.startswith(f"{excluded}/"):
            del images[name]
    if not images:
        raise BatchError(f"{place}: no PNG, JPEG or WebP files found")
    return store, images


def find_dataset(
    place: str,
    excluded: str,
    form: DatasetFormat,
    annotations: str | None,
) -> tuple[Store, dict[str, Image], list[dict[str, Any]]]:
    """Return the images with boxes or points of a data set.

    Args:
        place: folder of the data set.
        excluded: folder to skip.
        form: format of the data set.
        annotations: path of its JSON, CSV or YAML file in it, or None.

    Returns:
        The file system, the images by path, and what was left out, as `Dataset.failures`.
    """
    store, root = open_store(place)
    real_root = Path(root).resolve()
    is_local = isinstance(store.system, fs.LocalFileSystem)
    entries: dict[str, fs.FileInfo] = {}
    for entry in _list(store, root):
        path = store.prefix + entry.path
        if is_local and not Path(path).resolve().is_relative_to(real_root):
            continue  # a link to outside of the folder
        if not path.startswith(f"{excluded}/"):
            entries[path.removeprefix(f"{root}/")] = entry

    def open_file(name: str) -> Any:
        return store.system.open_input_stream(entries[name].path)

    data = read_dataset(form, sorted(entries), open_file, annotations)
    images: dict[str, Image] = {}
    for name, image in data.images.items():
        objects = [(item.category["name"], item.fields) for item in image.objects]
        if objects:
            path = f"{root}/{name}"
            request = {**image.request(), "objects": objects}
            images[path] = _image(path, entries[name], request)
    return store, images, data.failures


def _image(path: str, entry: fs.FileInfo, request: dict[str, Any]) -> Image:
    canonical = json.dumps(request, sort_keys=True, separators=(",", ":"))
    return Image(path, entry.size, entry.mtime_ns, canonical)


def _list(store: Store, path: str) -> Iterator[fs.FileInfo]:
    """Yield the files of a folder, a pattern or a single path, without hidden ones."""
    target = store.inside(path)
    root, star, _ = target.partition("*")
    # Of a pattern, the folder before its first star is listed.
    start = (root.rpartition("/")[0] or "/") if star else target
    (info,) = entries = store.system.get_file_info([start])
    if not info.is_file:
        entries = store.system.get_file_info(fs.FileSelector(info.path, recursive=True))
    matches = _pattern(target) if star else re.compile(".*", re.DOTALL)
    for entry in entries:
        is_hidden = re.search(r"(^|/)\.", entry.path[len(root) :])
        if entry.is_file and matches.fullmatch(entry.path) and not is_hidden:
            yield entry


def _pattern(target: str) -> re.Pattern[str]:
    """Return a pattern of files as a regular expression."""
    expressions = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
    pieces = re.split(r"(\*\*/|\*\*|\*)", target)
    translated = [expressions.get(piece, re.escape(piece)) for piece in pieces]
    return re.compile("".join(translated), re.DOTALL)


def _read_list(store: Store, path: str) -> Iterator[tuple[str, list[dict[str, Any]] | None]]:
    """Yield the paths and prompts of a list; None for everything.

    Raises:
        BatchError: a column is missing, or prompts are malformed.
    """
    if path.lower().endswith(".txt"):
        for line in store.read(path).decode().splitlines():
            if line.strip():
                yield _absolute(line.strip()), None
        return
    columns = pq.read_table(store.inside(path), filesystem=store.system).to_pydict()
    names = columns.get("path", [None])
    if not all(isinstance(name, str) and name for name in names):
        expected = "expected a column path of strings and optionally prompts"
        raise BatchError(f"{path}: {expected}, got {', '.join(columns)}")
    for name, prompts in zip(names, columns.get("prompts", [None] * len(names)), strict=True):
        yield _absolute(name), _prompts(f"{path}: {name}", prompts)


def _prompts(where: str, value: Any) -> list[dict[str, Any]] | None:
    """Return the prompts of an image in a list, which are structs or JSON; None for everything."""
    if isinstance(value, str):
        with suppress(ValueError):  # what is no JSON is refused as text
            value = json.loads(value)
    if value is None:
        return None
    try:
        return check_prompts(value)
    except ValueError as error:
        raise BatchError(f"{where}: {error}") from None
