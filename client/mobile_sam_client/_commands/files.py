"""Files written at once and whole, or not at all."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import typer

from mobile_sam_client._commands.failures import CannotWrite


def read_image(path: Path) -> bytes:
    """The bytes of an image file, whatever they are; what is no image the service says.

    Raises:
        OSError: the file cannot be read, or is empty.
    """
    content = path.read_bytes()
    if not content:
        raise OSError(errno.EINVAL, "expected a PNG, JPEG or WebP file, got an empty one", str(path))
    return content


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A binary file that becomes `path` when all is written to it; what stood there before stays until then.

    Folders on the way are made.

    Raises:
        CannotWrite: the disk is full, the folder may not be written to, or the like.
    """
    target = path.resolve()
    try:
        if target.exists() and not target.is_file():  # a device or a pipe is written to, never replaced
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
    """Write a file.

    Raises:
        CannotWrite: as `replacing`.
    """
    with replacing(path) as file:
        file.write(content)


def write_json(path: Path, document: Any) -> None:
    """Write a JSON file.

    Raises:
        CannotWrite: as `replacing`.
    """
    write_bytes(path, json.dumps(document).encode() + b"\n")


def check_output(path: Path | None, suffixes: Collection[str], option: str, *others: Path) -> None:
    """Find out before any work whether a result has a name that tells its kind, a place, and is nobody else's.

    Args:
        path: the file; None where the option was not given.
        suffixes: how its name may end, in lower case.
        option: as it is written on the command line.
        others: files that the command reads, or writes too.

    Raises:
        typer.BadParameter: the name has another ending, or is that of another file.
        CannotWrite: as `check_place`.
    """
    if path is None:
        return
    if path.suffix.lower() not in suffixes:
        raise typer.BadParameter(f"expected a name that ends in {' or '.join(suffixes)}, got {path}", param_hint=option)
    if path.resolve() in {other.resolve() for other in others}:
        raise typer.BadParameter(f"expected another file than {path}, which is read or written, too", param_hint=option)
    check_place(path)


def check_place(path: Path) -> None:
    """Find out before any work whether a file could be written; nothing is made yet.

    Raises:
        CannotWrite: it is a folder, or its own folder can neither be made nor be written to.
    """
    target = path.resolve()
    place = next(folder for folder in target.parents if folder.exists())
    if target.is_dir():
        number = errno.EISDIR
    elif not place.is_dir():
        number = errno.ENOTDIR
    elif not os.access(place, os.W_OK | os.X_OK):
        number = errno.EACCES
    else:
        return
    raise CannotWrite(path, OSError(number, os.strerror(number)))
