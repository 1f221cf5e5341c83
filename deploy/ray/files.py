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

from deploy.ray.plan import Image
from mobile_sam_client._commands.files import write_bytes
from mobile_sam_client._commands.output import CommandError
from mobile_sam_client._commands.prompts import checked_prompts
from mobile_sam_client._datasets.readers import read_dataset
from mobile_sam_client._pictures import FORMATS

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
        """Create or replace a file atomically. Object stores do this themselves."""
        if isinstance(self.system, fs.LocalFileSystem):
            write_bytes(Path(path), content)
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


def find_images(place: str, excluded: str, everything: dict[str, Any]) -> tuple[Store, dict[str, Image]]:
    """Return the images of a batch by path.

    Args:
        place: a folder, an image, a pattern such as `photos/**/*.jpg`, a `.txt` file with one path per line, or a
            Parquet file with a column `path` and optionally `prompts`.
        excluded: folder to skip.
        everything: parameters for images without prompts.

    Raises:
        CommandError: there are no images, or the list is invalid.
    """
    store, path = open_store(place)
    if path.lower().endswith(LIST_SUFFIXES):
        listed = list(_read_list(store, path))
        if listed:  # the images may be in another file system than the list
            store, _ = open_store(listed[0][0])
        entries = store.system.get_file_info([store.inside(name) for name, _ in listed])
    else:
        entries = [entry for entry in _list(store, path) if entry.path.lower().endswith(tuple(FORMATS))]
        listed = [(store.prefix + entry.path, None) for entry in entries]
    found: dict[str, Image] = {}
    for (name, prompts), entry in zip(listed, entries, strict=True):
        image = _image(name, entry, {"prompts": prompts} if prompts else {"everything": everything})
        if found.setdefault(name, image).asked != image.asked:
            raise CommandError(f"{name}: listed twice with different prompts")
    found = {name: image for name, image in found.items() if not name.startswith(f"{excluded}/")}
    if not found:
        raise CommandError(f"{place}: no PNG, JPEG or WebP files found")
    return store, found


def find_dataset(
    place: str, excluded: str, form: str, annotations: str | None
) -> tuple[Store, dict[str, Image], list[dict[str, Any]]]:
    """Return the images with boxes or points of a data set's folder, and what was left out, as `Dataset.failures`."""
    store, root = open_store(place)
    real, entries = Path(root).resolve(), {}
    for entry in _list(store, root):
        path = store.prefix + entry.path
        outside = isinstance(store.system, fs.LocalFileSystem) and not Path(path).resolve().is_relative_to(real)
        if not outside and not path.startswith(f"{excluded}/"):
            entries[path.removeprefix(f"{root}/")] = entry
    data = read_dataset(
        form, sorted(entries), lambda name: store.system.open_input_stream(entries[name].path), annotations
    )
    images = {}
    for name, image in data.images.items():
        if objects := [(each.category["name"], each.fields) for each in image.objects]:
            path = f"{root}/{name}"
            images[path] = _image(path, entries[name], {**image.request(), "objects": objects})
    return store, images, data.failures


def _image(path: str, entry: fs.FileInfo, request: dict[str, Any]) -> Image:
    return Image(path, entry.size, entry.mtime_ns, json.dumps(request, sort_keys=True, separators=(",", ":")))


def _list(store: Store, path: str) -> Iterator[fs.FileInfo]:
    """Yield the files of a folder, a pattern or a single path, without hidden ones."""
    target = store.inside(path)
    root, star, _ = target.partition("*")
    (info,) = entries = store.system.get_file_info([(root.rpartition("/")[0] or "/") if star else target])
    if not info.is_file:
        entries = store.system.get_file_info(fs.FileSelector(info.path, recursive=True))
    expressions = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
    pieces = [expressions.get(piece, re.escape(piece)) for piece in re.split(r"(\*\*/|\*\*|\*)", target)]
    matches = re.compile("".join(pieces) if star else ".*", re.DOTALL).fullmatch
    for entry in entries:
        if entry.is_file and matches(entry.path) and not re.search(r"(^|/)\.", entry.path[len(root) :]):
            yield entry


def _read_list(store: Store, path: str) -> Iterator[tuple[str, list[dict[str, Any]] | None]]:
    """Yield the paths and prompts of a list; None for everything.

    Raises:
        CommandError: a column is missing, or prompts are malformed.
    """
    if path.lower().endswith(".txt"):
        yield from ((_absolute(line.strip()), None) for line in store.read(path).decode().splitlines() if line.strip())
        return
    columns = pq.read_table(store.inside(path), filesystem=store.system).to_pydict()
    names = columns.get("path", [None])
    if not all(isinstance(name, str) and name for name in names):
        expected = "expected a column path of strings and optionally prompts"
        raise CommandError(f"{path}: {expected}, got {', '.join(columns)}")
    for name, prompts in zip(names, columns.get("prompts", [None] * len(names)), strict=True):
        with suppress(ValueError):
            prompts = json.loads(prompts) if isinstance(prompts, str) else prompts  # noqa: PLW2901
        yield _absolute(name), None if prompts is None else checked_prompts(f"{path}: {name}", prompts)
