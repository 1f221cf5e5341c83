"""Reading of project files that the page has saved."""

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from pycocotools import mask as coco

from mobile_sam_client._arrays import BoolMask
from mobile_sam_client._commands.output import CommandError

PROJECT_FILE = "project.json"
VERSION = 1
MAX_PROJECT_BYTES = 2**30


@dataclass(frozen=True)
class LabelledPicture:
    """The last image of a project that has objects."""

    name: str
    """Path of the image as the page lists it."""
    file: bytes
    """The image file that the objects are on."""
    is_smaller_copy: bool
    """Whether the page opened a smaller copy of the image."""
    categories: list[dict[str, Any]]
    """COCO categories of the project."""
    masks: list[BoolMask]
    """Mask of each object, (H, W) bool."""
    names: list[str]
    """Name of each object."""
    category_ids: list[int]
    """Category of each object."""


def read_last_labelled(path: Path) -> LabelledPicture:
    """Read the objects of the last labelled image of a saved project.

    Raises:
        CommandError: the file is no project, is damaged, or has no image with objects.
        OSError: the file cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo(PROJECT_FILE).file_size > MAX_PROJECT_BYTES:
                raise CommandError(
                    f"{path}: {PROJECT_FILE} has more than {MAX_PROJECT_BYTES} bytes"
                )
            return _last_labelled(path, archive)
    except zipfile.BadZipFile as error:
        raise CommandError(f"{path}: expected a project saved by the page: {error}") from None
    except KeyError as error:
        raise CommandError(f"{path}: the project is damaged: {error} is missing") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise CommandError(f"{path}: the project is damaged: {error}") from None


def _last_labelled(path: Path, archive: zipfile.ZipFile) -> LabelledPicture:
    document = json.loads(archive.read(PROJECT_FILE))
    version = document["version"]
    if version != VERSION:
        raise CommandError(f"{path}: expected a project of version {VERSION}, got {version!r}")
    labelled = [image for image in document["images"] if _shown(image)]
    if not labelled:
        raise CommandError(f"{path}: no image of the project has objects")
    image = labelled[-1]
    categories = [
        {"id": int(entry["id"]), "name": str(entry["name"]), "supercategory": ""}
        for entry in document["classes"]
    ]
    known_ids = {category["id"] for category in categories}
    objects = {entry["id"]: entry for entry in image["work"]["objects"]["now"]["list"]}
    masks, names, category_ids = [], [], []
    for object_id, record in _shown(image):
        entry = objects[object_id]
        masks.append(_mask(record, int(image["height"]), int(image["width"])))
        names.append(str(entry["name"]))
        category_id = int(entry["classId"])
        if category_id not in known_ids:
            raise ValueError(f"an object has the unknown class {category_id}")
        category_ids.append(category_id)
    file = archive.read(str(image["path"]))
    return LabelledPicture(
        name=str(PurePosixPath(str(image["name"]).replace("\\", "/"))),
        file=file,
        is_smaller_copy=bool(image.get("original")),
        categories=categories,
        masks=masks,
        names=names,
        category_ids=category_ids,
    )


def _shown(image: dict[str, Any]) -> list[Any]:
    """Return ids and masks of an image's objects; those without pixels are left out."""
    work = image.get("work") or {}
    return [(object_id, record) for object_id, record in work.get("shown", []) if record["area"]]


def _mask(record: dict[str, Any], height: int, width: int) -> BoolMask:
    if list(record["size"]) != [height, width]:
        raise ValueError(f"expected a mask of {height} x {width} pixels, got {record['size']}")
    decoded = coco.decode({"size": [height, width], "counts": str(record["counts"])})
    # The decoder leaves pixels uninitialized if the RLE is too short.
    if int(np.count_nonzero(decoded)) != record["area"]:
        raise ValueError(f"a mask has {np.count_nonzero(decoded)} pixels, not {record['area']}")
    return np.ascontiguousarray(decoded, bool)
