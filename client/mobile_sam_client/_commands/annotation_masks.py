"""Annotations with masks for `mobile-sam convert`: read from COCO or Label Studio, written as COCO
or for Label Studio.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from pycocotools import mask as rle_tools

from mobile_sam_client._arrays import BoolMask
from mobile_sam_client._commands import files
from mobile_sam_client._commands.output import CommandError
from mobile_sam_client._datasets.coco import read_coco
from mobile_sam_client._datasets.coco_masks import box_mask, read_segmentation
from mobile_sam_client._datasets.dataset import Dataset, DatasetImage, DatasetObject
from mobile_sam_client._datasets.label_studio_masks import LABEL_CONFIG, read_label_studio_masks
from mobile_sam_client._datasets.label_studio_tasks import Region, label_config, task
from mobile_sam_client._datasets.values import DatasetError, check_size

Masked = tuple[DatasetObject, BoolMask]
"""An object with its mask, (H, W) bool."""


def is_label_studio(annotations: Path) -> bool:
    """Return whether a file has Label Studio's tasks: a list, or one task."""
    try:
        document = json.loads(annotations.read_bytes())
    except (ValueError, RecursionError):
        return False
    is_task = isinstance(document, dict) and "data" in document and "images" not in document
    return isinstance(document, list) or is_task


def read_annotations(annotations: Path, images: Path) -> Dataset:
    """Read COCO or Label Studio's tasks, with images in a folder.

    Raises:
        CommandError: the file cannot be read.
    """
    root = images.resolve()
    config = annotations.with_name(LABEL_CONFIG)
    # These may lie outside of the images' folder.
    given = {f"//{path.name}": path for path in (annotations, config) if path.is_file()}
    names = []
    for name in files.list_files(images, root / "."):
        path = (root / name).resolve()
        if path.is_file() and path.is_relative_to(root):
            names.append(name)

    def open_file(name: str) -> BinaryIO:
        return (given.get(name) or root / name).open("rb")

    data = Dataset([*names, *given], open_file)
    reader = read_label_studio_masks if is_label_studio(annotations) else read_coco
    try:
        reader(data, f"//{annotations.name}")
    except DatasetError as error:
        reason = str(error).removeprefix(f"//{annotations.name}: ").removeprefix("//")
        raise CommandError(f"cannot convert {annotations}: {reason}") from None
    data.number()
    for failure in data.failures:
        failure["file"] = failure["file"].removeprefix("//")
    return data


def coco_document(data: Dataset) -> dict[str, Any]:
    """Return a data set as COCO, with masks as RLE."""
    images = []
    annotations = []
    for image, (width, height), objects in masked_images(data):
        images.append({**image.fields, "width": width, "height": height})
        for item, mask in objects:
            rle = rle_tools.encode(np.asfortranarray(mask, np.uint8))
            counts = rle["counts"].decode()
            annotations.append(
                {
                    "iscrowd": 0,
                    **item.fields,
                    "image_id": image.fields["id"],
                    "category_id": item.category["id"],
                    "segmentation": {"size": list(rle["size"]), "counts": counts},
                    "area": int(rle_tools.area(rle)),
                    "bbox": [int(side) for side in rle_tools.toBbox(rle)],
                }
            )
    return {
        "info": {},
        "licenses": [],
        **data.head,
        "images": images,
        "categories": list(data.categories.values()),
        "annotations": annotations,
    }


def write_label_studio(data: Dataset, images: Path, out: Path) -> int:
    """Write `tasks.json` and the labelling configuration, and return the number of images."""
    tasks = []
    folder = images.resolve().name
    for image, size_wh, objects in masked_images(data):
        regions = []
        for item, mask in objects:
            name = item.fields.get("name")
            score = item.fields.get("score")
            is_score = type(score) in {int, float}
            regions.append(
                Region(
                    mask,
                    item.category["name"],
                    name if isinstance(name, str) else None,
                    score if is_score else None,
                )
            )
        tasks.append(task(f"{folder}/{image.name}", size_wh, regions))
    files.write_json(out / "tasks.json", tasks)
    config = label_config(data.categories.values())
    files.write_bytes(out / LABEL_CONFIG, config.encode(errors="replace"))
    return len(tasks)


def masked_images(
    data: Dataset,
) -> Iterator[tuple[DatasetImage, tuple[int, int], list[Masked]]]:
    """Yield each image, its width and height, and its objects with masks.

    What has no mask becomes the whole box, which is noted in `data.failures`; what cannot be read
    is left out and noted.
    """
    for image in data.images.values():
        objects: list[Masked] = []
        with data.reporting(image.name):
            size_wh = data.size_wh(image.name)
            check_size(image.request(), size_wh)
            for item in image.objects:
                with data.reporting(image.name, object=item.fields["id"]):
                    objects.append((item, _mask(data, image, item, size_wh)))
            yield image, size_wh, objects


def _mask(
    data: Dataset, image: DatasetImage, item: DatasetObject, size_wh: tuple[int, int]
) -> BoolMask:
    mask = read_segmentation(item.fields.get("segmentation"), size_wh)
    if mask is None or not mask.any():
        mask = box_mask(item.shape, size_wh)
        if mask.any():
            reason = "it has only a box, which is written as its mask"
            data.note(reason, image.name, object=item.fields["id"])
    if not mask.any():
        raise DatasetError("it has no mask, and no box in the image")
    return mask
