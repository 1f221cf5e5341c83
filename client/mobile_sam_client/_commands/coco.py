"""COCO annotation files with the single category "object"."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pycocotools import mask as rle_tools

from mobile_sam_client import Record, Rle, Weights
from mobile_sam_client._commands.coco_ids import CocoIds
from mobile_sam_client._commands.files import atomic_writer

CATEGORY = {"id": 1, "name": "object", "supercategory": ""}


@dataclass(frozen=True)
class LabelledImage:
    """An image and its objects."""

    file_name: str
    width: int
    height: int
    objects: list[dict[str, Any]]
    """Objects as returned by `coco_object`."""


def coco_object(rle: Rle, score: float, **more: Any) -> dict[str, Any]:
    """Return a COCO annotation: `segmentation`, `area` in pixels, `bbox` (x, y, width, height), `score`.

    Args:
        rle: the mask.
        score: 0 to 1.
        more: further fields.
    """
    bbox = [int(value) for value in rle_tools.toBbox(rle)]
    return {"segmentation": rle, "area": int(rle_tools.area(rle)), "bbox": bbox, "score": score, **more}


def coco_objects(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Return the COCO annotations of `Everything.masks`."""
    return [coco_object(record.rle, record.predicted_iou, stability_score=record.stability_score) for record in records]


def write_coco(path: Path, images: Iterable[LabelledImage], weights: Weights | None, ids: CocoIds) -> int:
    """Write a COCO file. Images are consumed one by one to save memory.

    Args:
        path: the file.
        images: images with their objects.
        weights: weights of the model, or None if unknown.
        ids: assigns ids to images and objects.

    Returns:
        The number of objects.

    Raises:
        CannotWrite: the file cannot be written.
    """
    info = {"description": "objects found by MobileSAM", "weights": asdict(weights) if weights else None}
    image_entries: list[dict[str, Any]] = []
    count = 0
    with atomic_writer(path) as file:
        file.write(f'{{"info": {json.dumps(info)}, "licenses": [], "categories": {json.dumps([CATEGORY])}, '.encode())
        file.write(b'"annotations": [')
        for image in images:
            image_ids = ids.assign(image.file_name, image.objects)
            size = {"width": image.width, "height": image.height}
            image_entries.append({"id": image_ids.image, "file_name": image.file_name, **size})
            for object_id, fields in enumerate(image.objects, image_ids.first_object):
                file.write(b",\n" if count else b"\n")
                count += 1
                keys = {"id": object_id, "image_id": image_ids.image, "category_id": CATEGORY["id"], "iscrowd": 0}
                file.write(json.dumps({**keys, **fields}).encode())
        file.write(f'\n], "images": {json.dumps(image_entries)}}}\n'.encode())
    return count
