"""YOLO, Pascal VOC and LabelMe files, which the Python package supervision writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal
from xml.parsers.expat import ExpatError

import numpy as np

from mobile_sam_client._commands.annotation_masks import Masked, masked_images
from mobile_sam_client._commands.files import write_data_yaml
from mobile_sam_client._commands.output import CommandError
from mobile_sam_client._commands.yolo_labels import write_yolo
from mobile_sam_client._datasets.coco_masks import mask_box
from mobile_sam_client._errors import describe_error

if TYPE_CHECKING:
    import supervision

    from mobile_sam_client._datasets.dataset import Dataset

REQUIREMENT = "supervision>=0.31"
PolygonFormat = Literal["yolo", "voc", "labelme"]
"""Formats in which masks are polygons."""


def check_supervision() -> None:
    """Raise `CommandError` if the package supervision is missing."""
    try:
        import supervision  # noqa: F401, PLC0415 (optional, and slow to import)
    except ImportError:
        command = f"pip install '{REQUIREMENT}'"
        raise CommandError(f"convert needs another package: {command}") from None


def write_polygons(data: Dataset, images: Path, to: PolygonFormat, out: Path) -> int:
    """Write the files of a data set, and return the number of images.

    The images are written one by one, so that only the masks of one are in memory. An image that
    cannot be written is left out and noted in `data.failures`.

    Args:
        data: the data set.
        images: folder of its images.
        to: format of the files.
        out: folder for the files.
    """
    categories = sorted(data.categories.values(), key=lambda category: category["id"])
    class_names = [category["name"] for category in categories]
    class_numbers = {category["id"]: number for number, category in enumerate(categories)}
    owners: dict[str, str] = {}
    for image, _, objects in masked_images(data):
        stem = PurePosixPath(image.name).stem
        if stem in owners:
            data.report(f"its files would overwrite those of {owners[stem]}", image.name)
            continue
        try:
            dataset = _one_image(images / image.name, objects, class_names, class_numbers)
            _write(dataset, to, out)
        except (ValueError, TypeError, KeyError, ExpatError) as error:
            data.report(_reason(error), image.name)
            continue
        owners[stem] = image.name
    if to == "yolo":
        write_data_yaml(out / "data.yaml", class_names, {})
    return len(owners)


def _one_image(
    path: Path,
    objects: Sequence[Masked],
    class_names: list[str],
    class_numbers: dict[int, int],
) -> supervision.DetectionDataset:
    """Return an image as a data set of supervision.

    Args:
        path: path of the image.
        objects: its objects.
        class_names: names of all classes.
        class_numbers: places of the classes in that list, by the id of their category.
    """
    import supervision  # noqa: PLC0415 (optional, and slow to import)

    detections = supervision.Detections.empty()
    if objects:
        detections = supervision.Detections(
            xyxy=np.array([mask_box(mask) for _, mask in objects], np.float32),
            mask=np.array([mask for _, mask in objects]),
            class_id=np.array([class_numbers[item.category["id"]] for item, _ in objects]),
        )
    return supervision.DetectionDataset(class_names, [str(path)], {str(path): detections})


def _write(dataset: supervision.DetectionDataset, to: PolygonFormat, out: Path) -> None:
    if to == "yolo":
        write_yolo(dataset, out / "labels")
    elif to == "voc":
        dataset.as_pascal_voc(annotations_directory_path=str(out))
    else:
        dataset.as_labelme(annotations_directory_path=str(out))


def _reason(error: Exception) -> str:
    """Return why supervision has not written an image."""
    if isinstance(error, KeyError):
        return f"{error} is missing"
    return describe_error(error)
