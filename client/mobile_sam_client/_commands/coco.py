"""COCO's JSON: images, and objects on them, of the one category "object"."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pycocotools import mask as rle_tools

from mobile_sam_client import Record, Rle, Weights
from mobile_sam_client._commands.coco_ids import CocoIds
from mobile_sam_client._commands.files import replacing

CATEGORY = {"id": 1, "name": "object", "supercategory": ""}


@dataclass(frozen=True)
class LabelledImage:
    """An image and what was found on it."""

    file_name: str
    width: int
    height: int
    objects: list[dict[str, Any]]
    """Each as `described` gives it."""


def described(rle: Rle, score: float, **more: Any) -> dict[str, Any]:
    """An object as COCO describes it: `segmentation`, `area` in pixels, `bbox` (x, y, width, height), and its score.

    Args:
        rle: the mask.
        score: 0 to 1.
        more: further members.
    """
    bbox = [int(value) for value in rle_tools.toBbox(rle)]
    return {"segmentation": rle, "area": int(rle_tools.area(rle)), "bbox": bbox, "score": score, **more}


def objects_of(records: Iterable[Record]) -> list[dict[str, Any]]:
    """All that was found on a whole image, as COCO describes it."""
    return [described(one.rle, one.predicted_iou, stability_score=one.stability_score) for one in records]


def write_coco(path: Path, images: Iterable[LabelledImage], weights: Weights | None, ids: CocoIds) -> int:
    """Write a COCO file; images are taken one by one, so that many need little memory.

    Args:
        path: the file.
        images: what was found on each.
        weights: what it was found with; None where that is not known.
        ids: gives images and objects theirs.

    Returns:
        How many objects are in it.

    Raises:
        CannotWrite: the file cannot be written.
    """
    about = {"description": "objects found by MobileSAM", "weights": asdict(weights) if weights else None}
    listed: list[dict[str, Any]] = []
    count = 0
    with replacing(path) as file:
        file.write(f'{{"info": {json.dumps(about)}, "licenses": [], "categories": {json.dumps([CATEGORY])}, '.encode())
        file.write(b'"annotations": [')
        for image in images:
            own = ids.of(image.file_name, image.objects)
            listed.append({"id": own.image, "file_name": image.file_name, "width": image.width, "height": image.height})
            for number, found in enumerate(image.objects, own.first_object):
                file.write(b",\n" if count else b"\n")
                count += 1
                head = {"id": number, "image_id": own.image, "category_id": CATEGORY["id"], "iscrowd": 0}
                file.write(json.dumps({**head, **found}).encode())
        file.write(f'\n], "images": {json.dumps(listed)}}}\n'.encode())
    return count
