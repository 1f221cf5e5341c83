"""Finding and reading images, and writing files atomically."""

from __future__ import annotations

import errno
import glob
import json
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import typer

from mobile_sam_client._commands.output import CannotWrite, CommandError

IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp"})


def list_images(folder: Path, excluded: Path) -> list[str]:
    """Return the sorted relative paths of all images in a folder and its subfolders.

    Hidden files and folders are skipped, and links to folders are not followed.

    Args:
        folder: folder to search.
        excluded: subfolder to skip.

    Raises:
        OSError: the folder cannot be read.
    """

    def fail(error: OSError) -> None:
        raise error

    excluded = excluded.resolve()
    found = []
    for parent, folders, files in os.walk(folder, onerror=fail):
        here = Path(parent)
        folders[:] = [name for name in folders if not name.startswith(".") and (here / name).resolve() != excluded]
        found += [
            (here / name).relative_to(folder).as_posix()
            for name in files
            if Path(name).suffix.lower() in IMAGE_SUFFIXES and not name.startswith(".")
        ]
    return sorted(found)


def find_images(paths: Iterable[Path]) -> list[Path]:
    """Return paths with glob patterns replaced by the files that match, if any; each path once."""
    found: list[Path] = []
    for path in paths:
        names = glob.glob(str(path), recursive=True) if not path.exists() else []  # noqa: PTH207 (also absolute)
        found += sorted(match for match in map(Path, names) if match.is_file()) or [path]
    return list(dict.fromkeys(found))


def read_image(path: Path) -> bytes:
    """Read an image file. The service checks its contents.

    Raises:
        OSError: the file cannot be read, or is empty.
    """
    content = path.read_bytes()
    if not content:
        raise OSError(errno.EINVAL, "expected a PNG, JPEG or WebP file, got an empty one", str(path))
    return content


@contextmanager
def atomic_writer(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` at the end of the block. Missing folders are created.

    Raises:
        CannotWrite: the file cannot be written.
    """
    target = path.resolve()
    try:
        if target.exists() and not target.is_file():  # devices and pipes are written directly, not replaced
            with target.open("wb") as file:
                yield file
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(f".{target.name}.part")
        try:
            with part.open("wb") as file:
                yield file
            part.replace(target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CannotWrite(path, error) from error


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file; raises as `atomic_writer`."""
    with atomic_writer(path) as file:
        file.write(content)


def write_json(path: Path, document: Any) -> None:
    """Write a JSON file; raises as `atomic_writer`."""
    write_bytes(path, json.dumps(document).encode() + b"\n")


def output_file(template: Path, image: Path, *numbers: int) -> Path:
    """Return the output file of an image.

    Args:
        template: path in which `{stem}` and `{parent}` stand for the image's name without suffix, and for its folder.
        image: path of the image.
        numbers: appended to the file's name, before its suffix.
    """
    path = Path(str(template).replace("{parent}", str(image.parent)).replace("{stem}", image.stem))
    return path.with_name("_".join([path.stem, *map(str, numbers)]) + path.suffix)


def check_suffix(path: Path | None, suffixes: Collection[str], option: str) -> None:
    """Raise `typer.BadParameter` unless the file of an option, if given, has one of the suffixes (lower case)."""
    if path is not None and path.suffix.lower() not in suffixes:
        raise typer.BadParameter(f"expected a {' or '.join(suffixes)} file, got {path}", param_hint=option)


def check_distinct(images: Iterable[Path], outputs: Iterable[Path]) -> None:
    """Raise `typer.BadParameter` if an output file is also an image, or would be written twice."""
    used = {image.resolve() for image in images}
    for path in outputs:
        if path.resolve() in used:
            text = f"{path} is already used as an input or output file; name outputs by {{stem}} and {{parent}}"
            raise typer.BadParameter(text, param_hint="--out / --picture")
        used.add(path.resolve())


def check_free(paths: Iterable[Path], *, force: bool) -> None:
    """Check before any work on an image that its output files can be written.

    Raises:
        CommandError: a file exists and `force` is False.
        CannotWrite: a file cannot be written.
    """
    for path in paths:
        if not force and path.is_file():
            raise CommandError(f"{path} exists; overwrite it with --force")
        check_writable(path)


def check_writable(path: Path) -> None:
    """Check before any work that a file can be written, without creating anything.

    Raises:
        CannotWrite: it is a folder, or its parent folder cannot be created or written to.
    """
    target = path.resolve()
    parent = next(folder for folder in target.parents if folder.exists())
    if target.is_dir():
        code = errno.EISDIR
    elif not parent.is_dir():
        code = errno.ENOTDIR
    elif not os.access(parent, os.W_OK | os.X_OK):
        code = errno.EACCES
    else:
        return
    raise CannotWrite(path, OSError(code, os.strerror(code)))
