"""Objects as COCO annotations: their files, and ids that stay the same."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from mobile_sam_client import Weights
from mobile_sam_client._commands.files import atomic_writer, write_json
from mobile_sam_client._commands.output import CommandError
from mobile_sam_client._commands.run import LabelledImage
from mobile_sam_client._exports import coco_annotation

Entry = tuple[dict[str, Any], list[dict[str, Any]]]
"""Entry of an image in a COCO file, and its annotations."""
ONE_CATEGORY = {"categories": [{"id": 1, "name": "object", "supercategory": ""}]}
"""Head of a file in which all objects have the category 1."""


class ImageIds(NamedTuple):
    """Ids of an image and its objects."""

    image: int
    first_object: int
    """Id of the first object; the others follow consecutively."""
    objects: int
    """Number of objects."""
    objects_sha256: str


class CocoIds:
    """Ids by image name, counted from 1. An id is never reused for another image or object."""

    def __init__(self, path: Path) -> None:
        """Continue from the ids in a file written by `write`, if it exists."""
        self._path, self._known = path, dict[str, ImageIds]()
        if path.exists():
            try:
                self._known = {name: ImageIds(**ids) for name, ids in json.loads(path.read_bytes()).items()}
            except (ValueError, TypeError, AttributeError):
                expected = "expected the ids written by an earlier run; delete the file to assign new ids"
                raise CommandError(f"{path}: malformed, {expected}") from None
        self._next_image = max((ids.image for ids in self._known.values()), default=0) + 1
        self._next_object = max((ids.first_object + ids.objects for ids in self._known.values()), default=1)

    def write(self) -> None:
        write_json(self._path, {name: ids._asdict() for name, ids in self._known.items()})

    def entry(self, image: LabelledImage) -> Entry:
        """Return the entry of an image, with known ids, or new ones for a new image or changed objects."""
        sha256 = hashlib.sha256(json.dumps(image.objects, sort_keys=True).encode()).hexdigest()
        ids = self._known.get(image.file_name)
        if ids is None or ids.objects_sha256 != sha256:
            number = ids.image if ids else self._next_image
            ids = self._known[image.file_name] = ImageIds(number, self._next_object, len(image.objects), sha256)
            self._next_image = max(self._next_image, number + 1)
            self._next_object += ids.objects
        numbered = enumerate(image.objects, ids.first_object)
        annotations = [coco_annotation(fields, object_id, ids.image, 1) for object_id, fields in numbered]
        size = {"width": image.width, "height": image.height}
        return {"id": ids.image, "file_name": image.file_name, **size}, annotations


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
