"""Objects as COCO annotations with the single category "object": their files, and results kept to resume a batch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mobile_sam_client import Everything, Weights
from mobile_sam_client._commands.files import atomic_writer, write_json
from mobile_sam_client._commands.output import CommandError
from mobile_sam_client._exports import coco_annotation, coco_fields

Entry = tuple[dict[str, Any], list[dict[str, Any]]]
"""Entry of an image in a COCO file, and its annotations."""
CATEGORY = {"id": 1, "name": "object", "supercategory": ""}


@dataclass(frozen=True)
class LabelledImage:
    """An image and its objects."""

    file_name: str
    width: int
    height: int
    objects: list[dict[str, Any]]
    """Objects as returned by `coco_fields`, possibly with more members."""

    @classmethod
    def from_everything(cls, name: str, found: Everything) -> LabelledImage:
        return cls(name, found.width, found.height, [coco_fields(record) for record in found])


@dataclass(frozen=True)
class ImageIds:
    """Ids of an image and its objects."""

    image: int
    first_object: int
    """Id of the first object; the others follow consecutively."""
    objects: int
    """Number of objects."""
    objects_sha256: str


class CocoIds:
    """Ids by image name, counted from 1. An id is never reused for another image or object."""

    def __init__(self, path: Path | None = None) -> None:
        """Continue from the ids in a file written by `write`, if it exists."""
        self._known: dict[str, ImageIds] = {}
        if path is not None and path.exists():
            try:
                self._known = {name: ImageIds(**ids) for name, ids in json.loads(path.read_bytes()).items()}
            except (ValueError, TypeError, AttributeError):
                expected = "expected the ids written by an earlier run; delete the file to assign new ids"
                raise CommandError(f"{path}: malformed, {expected}") from None
        self._next_image = max((ids.image for ids in self._known.values()), default=0) + 1
        self._next_object = max((ids.first_object + ids.objects for ids in self._known.values()), default=1)

    def write(self, path: Path) -> None:
        write_json(path, {name: asdict(ids) for name, ids in self._known.items()})

    def assign(self, image: LabelledImage) -> ImageIds:
        """Return the ids of an image: known ones, or new ones for a new image or changed objects."""
        sha256 = hashlib.sha256(json.dumps(image.objects, sort_keys=True).encode()).hexdigest()
        known = self._known.get(image.file_name)
        if known is None or known.objects_sha256 != sha256:
            count = len(image.objects)
            known = ImageIds(known.image if known else self._next_image, self._next_object, count, sha256)
            self._known[image.file_name] = known
            self._next_image = max(self._next_image, known.image + 1)
            self._next_object += count
        return known


def write_coco(path: Path, images: Iterable[LabelledImage], weights: Weights | None, ids: CocoIds) -> int:
    """Write objects of one category to a COCO file, and return their number."""

    def entry(image: LabelledImage) -> Entry:
        assigned = ids.assign(image)
        numbered = enumerate(image.objects, assigned.first_object)
        annotations = [coco_annotation(fields, object_id, assigned.image, 1) for object_id, fields in numbered]
        size = {"width": image.width, "height": image.height}
        return {"id": assigned.image, "file_name": image.file_name, **size}, annotations

    return write_entries(path, {"categories": [CATEGORY]}, map(entry, images), weights)


def write_entries(path: Path, head: Mapping[str, Any], entries: Iterable[Entry], weights: Weights | None) -> int:
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


def read_record(path: Path, name: str, question: dict[str, Any] | None = None) -> LabelledImage | None:
    """Return the result for an image; None if it is missing, damaged or the answer to another than a given question."""
    try:
        record = json.loads(path.read_bytes())
        if question is not None and record["question"] != question:
            return None
        return LabelledImage(name, record["width"], record["height"], record["objects"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def record_question(image: bytes, asked: dict[str, Any], weights: Weights | None) -> dict[str, Any]:
    """Return what an image's result depends on; a record is reused only if it is unchanged.

    Args:
        image: the image file.
        asked: request parameters, as JSON has them.
        weights: weights of the service, or None if it does not report them.
    """
    sha256 = weights.sha256 if weights else None
    return {"image_sha256": hashlib.sha256(image).hexdigest(), "asked": asked, "weights_sha256": sha256}
