"""Files of the commands: images to read, and results, written atomically."""

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
from mobile_sam_client._images import displayed_pixels
from mobile_sam_client._pictures import FORMATS, draw, encode
from mobile_sam_client.batches import CannotWrite

STANDARD = Path("-")
"""Standard input as an image, standard output as a result."""
Entry = tuple[dict[str, Any], list[dict[str, Any]]]
"""Entry of an image in a COCO file, and its annotations."""
IMAGE_SUFFIXES = {*FORMATS, ".heic", ".heif"}
ONE_CATEGORY = {"categories": [{"id": 1, "name": "object", "supercategory": ""}]}
"""Head of a file in which all objects have the category 1."""


def list_images(folder: Path, excluded: Path) -> list[str]:
    """Return the images of `list_files`."""
    names = list_files(folder, excluded)
    return [name for name in names if Path(name).suffix.lower() in IMAGE_SUFFIXES]


def list_files(folder: Path, excluded: Path) -> list[str]:
    """Return the sorted relative paths of all files in a folder and its subfolders.

    Hidden files and folders are skipped, and links to folders are not followed.

    Args:
        folder: the folder.
        excluded: subfolder to skip.
    """

    def fail(error: OSError) -> None:
        raise error

    excluded = excluded.resolve()
    paths: list[str] = []
    for parent, folders, files in os.walk(folder, onerror=fail):
        here = Path(parent)
        visible_folders = [name for name in folders if not name.startswith(".")]
        # `walk` enters the folders that are left in its list.
        folders[:] = [name for name in visible_folders if (here / name).resolve() != excluded]
        visible_files = [name for name in files if not name.startswith(".")]
        paths += [(here / name).relative_to(folder).as_posix() for name in visible_files]
    return sorted(paths)


def find_images(paths: Iterable[Path]) -> list[Path]:
    """Return paths with glob patterns replaced by the files that match, if any; each path once.

    Raises:
        typer.BadParameter: a path is a folder.
    """
    images: list[Path] = []
    for path in paths:
        if path.is_dir():
            hint = f"use `mobile-sam batch {path} --out FOLDER`, or name images: '{path}/*.jpg'"
            raise typer.BadParameter(f"{path} is a folder; {hint}", param_hint="IMAGE")
        matches: list[Path] = []
        if not path.exists():
            names = glob.glob(str(path), recursive=True)  # noqa: PTH207 (also absolute)
            matches = sorted(match for match in map(Path, names) if match.is_file())
        # A pattern without a match is left: reading it says that there is no such file.
        images += matches or [path]
    return list(dict.fromkeys(images))


def read_image(path: Path) -> bytes:
    """Read an image file, which must not be empty. The service checks its contents."""
    content = sys.stdin.buffer.read() if path == STANDARD else path.read_bytes()
    if not content:
        raise OSError(
            errno.EINVAL, "expected a PNG, JPEG or WebP file, got an empty one", str(path)
        )
    return content


@contextmanager
def atomic_writer(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` at the end of the block.

    Missing folders are created. Errors in writing are raised as `CannotWrite`.
    """
    target = path.resolve()
    try:
        if path == STANDARD:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
            return
        if target.exists() and not target.is_file():
            # Devices and pipes are written directly, not replaced.
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
    """Write a file atomically."""
    with atomic_writer(path) as file:
        file.write(content)


def write_json(path: Path, document: Any) -> None:
    """Write a JSON file atomically."""
    write_bytes(path, json.dumps(document).encode() + b"\n")


def write_coco(
    path: Path, head: Mapping[str, Any], entries: Iterable[Entry], weights: Weights | None
) -> int:
    """Write a COCO file, and return the number of annotations.

    Args:
        path: path of the file.
        head: further members of the document.
        entries: the images, which are consumed one by one to save memory.
        weights: weights that made the masks, if known.
    """
    info: dict[str, Any] = {
        "description": "objects found by MobileSAM",
        "weights": asdict(weights) if weights else None,
    }
    given_info = head.get("info")
    if isinstance(given_info, dict):
        info = {**given_info, **info}
    members = {"licenses": [], **head, "info": info}
    images: list[dict[str, Any]] = []
    count = 0
    with atomic_writer(path) as file:
        open_document = json.dumps(members).encode()[:-1]  # without its closing brace
        file.write(open_document + b', "annotations": [')
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
    lines = []
    for name, value in members.items():
        lines.append(f"{name}: {json.dumps(value, ensure_ascii=False)}\n")
    write_bytes(path, "".join(lines).encode(errors="replace"))


def write_overlay(path: Path, image: bytes, rles: Sequence[Rle]) -> None:
    """Draw objects on an image and write the picture.

    Raises:
        ValueError: the file is no image, or the objects are those of another one.
        CannotWrite: the picture cannot be written.
    """
    try:
        drawn = draw(displayed_pixels(image), rles)
    except ValueError as error:
        raise ValueError(f"cannot draw on the image: {error}") from error
    write_bytes(path, encode(Image.fromarray(drawn), path.suffix or ".png"))


def output_file(template: Path, image: Path, *numbers: int) -> Path:
    """Return the output file of an image.

    Args:
        template: path in which `{stem}` and `{parent}` are replaced by the image's.
        image: path of the image.
        numbers: numbers to add before the suffix.
    """
    if template == STANDARD:
        return template
    stem = "stdin" if image == STANDARD else image.stem
    path = Path(str(template).replace("{parent}", str(image.parent)).replace("{stem}", stem))
    numbered_stem = "_".join([path.stem, *map(str, numbers)])
    return path.with_name(numbered_stem + path.suffix)


def check_suffix(path: Path | None, suffixes: Collection[str], option: str) -> None:
    """Raise `typer.BadParameter` unless the file of an option has one of the suffixes.

    Args:
        path: the file; None if the option is not given.
        suffixes: suffixes in lower case.
        option: name of the option.
    """
    if path is None or path == STANDARD:
        return
    if path.suffix.lower() not in suffixes:
        expected = f"expected a {' or '.join(suffixes)} file"
        raise typer.BadParameter(f"{expected}, got {path}", param_hint=option)


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
