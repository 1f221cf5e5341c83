"""Finding and reading images, drawing on them, and writing files atomically, also in COCO's format."""

import errno
import glob
import json
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import typer
from PIL import Image

from mobile_sam_client import Rle, Weights
from mobile_sam_client._commands.output import CannotWrite, CommandError
from mobile_sam_client._images import displayed_pixels
from mobile_sam_client._pictures import FORMATS, draw, encode

STANDARD = Path("-")
"""Standard input as an image, standard output as a result."""
Entry = tuple[dict[str, Any], list[dict[str, Any]]]
"""Entry of an image in a COCO file, and its annotations."""
ONE_CATEGORY = {"categories": [{"id": 1, "name": "object", "supercategory": ""}]}
"""Head of a file in which all objects have the category 1."""


def list_images(folder: Path, excluded: Path) -> list[str]:
    """Return the images of `list_files`."""
    return [name for name in list_files(folder, excluded) if Path(name).suffix.lower() in {*FORMATS, ".heic", ".heif"}]


def list_files(folder: Path, excluded: Path) -> list[str]:
    """Return the sorted relative paths of all files in a folder and its subfolders, except an excluded one.

    Hidden files and folders are skipped, and links to folders are not followed.
    """

    def fail(error: OSError) -> None:
        raise error

    excluded, found = excluded.resolve(), []
    for parent, folders, files in os.walk(folder, onerror=fail):
        here = Path(parent)
        folders[:] = [name for name in folders if not name.startswith(".") and (here / name).resolve() != excluded]
        found += [(here / name).relative_to(folder).as_posix() for name in files if not name.startswith(".")]
    return sorted(found)


def find_images(paths: Iterable[Path]) -> list[Path]:
    """Return paths with glob patterns replaced by the files that match, if any; each path once.

    Raises:
        typer.BadParameter: a path is a folder.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            text = f"{path} is a folder; use `mobile-sam batch {path} --out FOLDER`, or name images: '{path}/*.jpg'"
            raise typer.BadParameter(text, param_hint="IMAGE")
        names = glob.glob(str(path), recursive=True) if not path.exists() else []  # noqa: PTH207 (also absolute)
        found += sorted(match for match in map(Path, names) if match.is_file()) or [path]
    return list(dict.fromkeys(found))


def read_image(path: Path) -> bytes:
    """Read an image file, which must not be empty. The service checks its contents."""
    content = sys.stdin.buffer.read() if path == STANDARD else path.read_bytes()
    if not content:
        raise OSError(errno.EINVAL, "expected a PNG, JPEG or WebP file, got an empty one", str(path))
    return content


@contextmanager
def atomic_writer(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` at the end of the block. Missing folders are created.

    Errors in writing are raised as `CannotWrite`.
    """
    target = path.resolve()
    try:
        if path == STANDARD:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
            return
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
    with atomic_writer(path) as file:
        file.write(content)


def write_json(path: Path, document: Any) -> None:
    write_bytes(path, json.dumps(document).encode() + b"\n")


def write_coco(path: Path, head: Mapping[str, Any], entries: Iterable[Entry], weights: Weights | None) -> int:
    """Write a COCO file from further members and images, and return the number of annotations.

    Images are consumed one by one to save memory.
    """
    found = {"description": "objects found by MobileSAM", "weights": asdict(weights) if weights else None}
    info = head.get("info")
    members = {"licenses": [], **head, "info": {**info, **found} if isinstance(info, dict) else found}
    images: list[dict[str, Any]] = []
    count = 0
    with atomic_writer(path) as file:
        file.write(json.dumps(members).encode()[:-1] + b', "annotations": [')
        for image, annotations in entries:
            images.append(image)
            for annotation in annotations:
                file.write(b",\n" if count else b"\n")
                count += 1
                file.write(json.dumps(annotation).encode())
        file.write(f'\n], "images": {json.dumps(images)}}}\n'.encode())
    return count


def write_data_yaml(path: Path, names: Sequence[str], folders: Mapping[str, str]) -> None:
    """Write YOLO's file of the names of classes and the folders of images; JSON is YAML."""
    members = {"train": "images", "val": "images", **folders, "names": names}
    text = "".join(f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in members.items())
    write_bytes(path, text.encode(errors="replace"))


def write_overlay(path: Path, image: bytes, rles: Sequence[Rle]) -> None:
    """Draw objects on an image and write the picture."""
    try:
        drawn = draw(displayed_pixels(image), rles)
    except ValueError as error:
        raise CommandError(f"cannot draw on the image: {error}") from error
    write_bytes(path, encode(Image.fromarray(drawn), path.suffix or ".png"))


def output_file(template: Path, image: Path, *numbers: int) -> Path:
    """Return the path with `{stem}` and `{parent}` replaced by the image's, and with numbers before its suffix."""
    if template == STANDARD:
        return template
    stem = "stdin" if image == STANDARD else image.stem
    path = Path(str(template).replace("{parent}", str(image.parent)).replace("{stem}", stem))
    return path.with_name("_".join([path.stem, *map(str, numbers)]) + path.suffix)


def check_suffix(path: Path | None, suffixes: Collection[str], option: str) -> None:
    """Raise `typer.BadParameter` unless the file of an option, if given, has one of the suffixes (lower case)."""
    if path not in {None, STANDARD} and path.suffix.lower() not in suffixes:
        raise typer.BadParameter(f"expected a {' or '.join(suffixes)} file, got {path}", param_hint=option)


def check_writable(path: Path) -> None:
    """Raise `CannotWrite` before any work if a file cannot be written; nothing is created."""
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
