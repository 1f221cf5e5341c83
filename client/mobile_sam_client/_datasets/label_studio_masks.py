"""Label Studio: tasks exported as JSON, with brush masks, polygons and rectangles as masks."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from pycocotools import mask as rle_tools

from mobile_sam_client._arrays import BoolMask
from mobile_sam_client._brush_rle import read_brush_rle
from mobile_sam_client._datasets.coco_masks import mask_box
from mobile_sam_client._datasets.dataset import MAX_LABEL_BYTES, Dataset, naming
from mobile_sam_client._datasets.label_studio import (
    LABELS,
    Task,
    check_turn,
    find_image,
    read_tasks,
)
from mobile_sam_client._datasets.polygon_masks import fill
from mobile_sam_client._datasets.values import (
    DatasetError,
    check_size,
    json_list,
    member,
    number,
    shown,
)
from mobile_sam_client._datasets.voc import parse_xml

LABEL_CONFIG = "label_config.xml"
"""File of the labelling configuration beside the tasks, which has the classes' colours and ids."""
MASK_SHAPES = ("brush", "polygon", "rectangle")


def read_label_studio_masks(data: Dataset, annotations: str) -> None:
    """Read the regions of all annotations that were not skipped, as masks.

    The fields of an object have its mask as `segmentation`, and perhaps `name` and `score`.
    """
    config = str(PurePosixPath(annotations).with_name(LABEL_CONFIG))
    if config in data.names:
        with naming(config):
            _read_config(data, config)
    read_tasks(data, annotations, _read_mask, _read_empty)


def _read_config(data: Dataset, name: str) -> None:
    """Read the classes of a labelling configuration."""
    for label in parse_xml(data.content(name, MAX_LABEL_BYTES)).iter("Label"):
        value = label.get("value")
        if not value:
            continue
        category = data.category(value)
        color, category_id = label.get("background"), label.get("category", "")
        if color:
            category["color"] = color
        if category_id.isascii() and category_id.isdecimal():
            category["id"] = int(category_id)


def _read_empty(data: Dataset, task: Task) -> None:
    """Add the image of a task without objects, if it is here."""
    data_values = task.get("data")
    if isinstance(data_values, dict) and data_values:
        find_image(data, task, {"to_name": "image"})


def _read_mask(data: Dataset, task: Task, result: Mapping[str, Any], labels: list[str]) -> None:
    kind, value = result["type"], result["value"]
    shape = kind.removesuffix(LABELS)
    if shape not in MASK_SHAPES:
        expected = "expected a brush mask, a polygon or a rectangle"
        raise DatasetError(f"{expected}, got {kind}")
    check_turn(result)
    image = find_image(data, task, result)
    width, height = size_wh = data.size_wh(image.name)
    try:
        check_size(image.request(), size_wh)
    except DatasetError:
        # Without objects it would look like an image that has none.
        if not image.objects:
            del data.images[image.name]
        raise
    try:
        mask = _mask(shape, value, width, height)
    except DatasetError:
        raise
    except ValueError as error:
        raise DatasetError(str(error)) from None
    if not mask.any():
        raise DatasetError("its mask is empty")
    fields: dict[str, Any] = {"labels": labels, "task": task.get("id")}
    fields |= {"segmentation": _rle(mask), **_meta(result.get("meta"))}
    box_parts = np.array(mask_box(mask)) / [*size_wh, *size_wh]
    data.add(image, box_parts.tolist(), data.category(labels[0]), fields)


def _mask(shape: str, value: Mapping[str, Any], width: int, height: int) -> BoolMask:
    if shape == "brush":
        if value.get("format") != "rle":
            raise DatasetError(
                f"expected a mask in the format rle, got {shown(value.get('format'))}"
            )
        return read_brush_rle(member(value, "rle"), width, height)
    if shape == "polygon":
        points = _points(member(value, "points"))
    else:
        points = _corners(value, width, height)
    return fill([points * (width / 100, height / 100)], width, height)


def _points(value: Any) -> Any:
    """Return (N, 2) float64 corners of a polygon, in per cent."""
    points = []
    for pair in json_list(value, "points"):
        if not isinstance(pair, list) or len(pair) != 2:
            raise DatasetError(f"expected points of two numbers, got {shown(pair)}")
        points.append([number(part, "points") for part in pair])
    if len(points) < 3:
        raise DatasetError(f"expected a polygon of at least three points, got {len(points)}")
    return np.array(points)


def _corners(value: Mapping[str, Any], width: int, height: int) -> Any:
    """Return (4, 2) float64 corners of a rectangle, in per cent.

    It may be turned, clockwise about its first corner, in pixels.
    """
    x, y, w, h = (number(member(value, side), side) for side in ("x", "y", "width", "height"))
    angle = np.deg2rad(number(value.get("rotation") or 0, "rotation") % 360)
    sides = np.array([[0, 0], [w, 0], [w, h], [0, h]])
    if angle:
        turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
        sides = sides * (width, height) @ turn / (width, height)
    return np.add(sides, (x, y))


def _meta(meta: Any) -> dict[str, Any]:
    """Return name and score of an object."""
    if not isinstance(meta, dict):
        return {}
    fields: dict[str, Any] = {}
    texts = meta.get("text")
    name = texts[0] if isinstance(texts, list) and texts else texts
    if isinstance(name, str) and name.strip():
        fields["name"] = name
    if "score" in meta:
        fields["score"] = number(meta["score"], "score")
    return fields


def _rle(mask: BoolMask) -> dict[str, Any]:
    rle = rle_tools.encode(np.asfortranarray(mask, np.uint8))
    return {"size": list(rle["size"]), "counts": rle["counts"].decode()}
