"""Images of a batch, in local folders or at URIs that pyarrow supports, such as `s3://`."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyarrow import fs

from deploy.ray.plan import BatchError, Image
from mobile_sam_client._datasets.dataset import DatasetFiles
from mobile_sam_client._datasets.readers import read_dataset

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
LIST_SUFFIXES = (".txt", ".parquet")
MAX_READERS = 16


@dataclass(frozen=True)
class Store:
    """A picklable file system."""

    system: fs.FileSystem
    prefix: str
    """Prefix of its paths: `s3://` and the like, empty for local files."""

    def inside(self, path: str) -> str:
        """Return the path as the file system takes it."""
        return path.removeprefix(self.prefix)

    def exists(self, path: str) -> bool:
        """Return whether the file exists."""
        return bool(self.system.get_file_info(self.inside(path)).is_file)

    def read(self, path: str) -> bytes:
        """Read a file."""
        with self.system.open_input_stream(self.inside(path)) as stream:
            return bytes(stream.read())

    def hashes(self, paths: list[str]) -> list[str | None]:
        """Return the SHA-256 of files, None if unreadable."""

        def sha256(path: str) -> str | None:
            with suppress(OSError):
                return hashlib.sha256(self.read(path)).hexdigest()
            return None

        with ThreadPoolExecutor(MAX_READERS) as pool:
            return list(pool.map(sha256, paths))

    def write(self, path: str, content: Any) -> None:
        """Create or replace a file atomically. Object stores do this themselves."""
        if not isinstance(self.system, fs.LocalFileSystem):
            with self.system.open_output_stream(self.inside(path)) as stream:
                stream.write(content)
            return
        folder = Path(path).parent
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".") as draft:
            (Path(draft) / "file").write_bytes(content)
            (Path(draft) / "file").replace(path)


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


def find_images(place: str, excluded: str, everything: dict[str, Any]) -> tuple[Store, dict[str, Image]]:
    """Return the images of a batch by path.

    Args:
        place: a folder, an image, a pattern such as `photos/**/*.jpg`, a `.txt` file with one path per line, or a
            Parquet file with a column `path` and optionally `prompts`.
        excluded: folder to skip.
        everything: parameters for images without prompts.

    Raises:
        BatchError: there are no images, or the list is invalid.
    """
    store, path = open_store(place)
    if path.lower().endswith(LIST_SUFFIXES):
        listed = [(_absolute(name), prompts) for name, prompts in _read_list(store, path)]
        if listed:  # the images may be in another file system than the list
            store, _ = open_store(listed[0][0])
        entries = store.system.get_file_info([store.inside(name) for name, _ in listed])
    else:
        entries = list(_find(store.system, store.inside(path)))
        listed = [(store.prefix + entry.path, None) for entry in entries]
    found: dict[str, Image] = {}
    for (name, prompts), entry in zip(listed, entries, strict=True):
        request = {"everything": everything} if prompts is None else {"prompts": _objects(name, prompts)}
        asked = json.dumps(request, sort_keys=True, separators=(",", ":"))
        size, mtime_ns = (entry.size, entry.mtime_ns) if entry.is_file else (None, None)  # a missing one fails later
        image = found.setdefault(name, Image(name, size, mtime_ns, asked))
        if image.asked != asked:
            raise BatchError(f"{name}: listed twice with different prompts")
    found = {name: image for name, image in found.items() if not name.startswith(f"{excluded}/")}
    if not found:
        raise BatchError(f"{place}: no PNG, JPEG or WebP files found")
    return store, found


def find_dataset(
    place: str, excluded: str, form: str, annotations: str | None
) -> tuple[Store, dict[str, Image], list[dict[str, Any]]]:
    """Return the images with boxes or points of a data set's folder, and what was left out, as `Dataset.failures`."""
    store, root = open_store(place)
    real, entries = Path(root).resolve(), {}
    for entry in store.system.get_file_info(fs.FileSelector(store.inside(root), recursive=True)):
        path = store.prefix + entry.path
        outside = isinstance(store.system, fs.LocalFileSystem) and not Path(path).resolve().is_relative_to(real)
        if entry.is_file and not outside and not path.startswith(f"{excluded}/"):
            entries[path.removeprefix(f"{root}/")] = entry
    files = DatasetFiles(sorted(entries), lambda name: store.system.open_input_stream(entries[name].path))
    data = read_dataset(form, files, annotations)
    images = {}
    for name, image in data.images.items():
        objects = [(each.category["name"], each.fields) for each in image.objects]
        asked = json.dumps({**image.request(), "objects": objects}, sort_keys=True, separators=(",", ":"))
        path = f"{root}/{name}"
        if objects:
            images[path] = Image(path, entries[name].size, entries[name].mtime_ns, asked)
    return store, images, data.failures


def _find(system: fs.FileSystem, target: str) -> Iterator[fs.FileInfo]:
    """Yield the images of a folder, a pattern or a single path, without hidden ones."""
    root, star, _ = target.partition("*")
    (info,) = entries = system.get_file_info([(root.rpartition("/")[0] or "/") if star else target])
    if info.type == fs.FileType.Directory:
        entries = system.get_file_info(fs.FileSelector(info.path, recursive=True))
    expressions = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
    pieces = [expressions.get(piece, re.escape(piece)) for piece in re.split(r"(\*\*/|\*\*|\*)", target)]
    matches = re.compile("".join(pieces) if star else ".*", re.DOTALL).fullmatch
    for entry in entries:
        hidden = re.search(r"(^|/)\.", entry.path[len(root) :])
        if entry.is_file and entry.path.lower().endswith(SUFFIXES) and not hidden and matches(entry.path):
            yield entry


def _read_list(store: Store, path: str) -> Iterable[tuple[str, Any]]:
    """Return the paths and prompts of a list; None for everything.

    Raises:
        BatchError: a column is missing.
    """
    if path.lower().endswith(".txt"):
        return [(line.strip(), None) for line in store.read(path).decode().splitlines() if line.strip()]
    columns = pq.read_table(store.inside(path), filesystem=store.system).to_pydict()
    names = columns.get("path", [None])
    if not all(isinstance(name, str) and name for name in names):
        raise BatchError(f"{path}: expected a column path of strings and optionally prompts, got {', '.join(columns)}")
    return zip(names, columns.get("prompts", [None] * len(names)), strict=True)


def _objects(name: str, prompts: Any) -> list[dict[str, Any]]:
    """Return the objects of an image from JSON or from a list of structs."""
    found = prompts
    with suppress(ValueError):
        found = json.loads(prompts) if isinstance(prompts, str) else prompts
    found = [found] if isinstance(found, dict) else found
    if not isinstance(found, list) or not found or not all(isinstance(fields, dict) for fields in found):
        form = '[{"pos_coords": [[x, y], ...], "box": [x0, y0, x1, y1]}, ...]'
        raise BatchError(f"{name}: expected prompts such as {form}, got {str(prompts)[:100]}")
    return [{field: value for field, value in fields.items() if value is not None} for fields in found]
