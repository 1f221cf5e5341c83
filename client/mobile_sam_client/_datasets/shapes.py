"""Masks of the boxes and points of an image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from pycocotools import mask as rle_tools

from mobile_sam_client._datasets.values import DatasetError
from mobile_sam_client._exports import coco_fields
from mobile_sam_client._images import displayed_wh
from mobile_sam_client._prompts import Prompt, request_fields

if TYPE_CHECKING:
    from supervision import Detections

    from mobile_sam_client._base import BaseClient
    from mobile_sam_client._results import Segmentation

MAX_ROUNDING = 0.5
"""Pixels by which a shape may exceed the image without a note, because formats round coordinates."""


async def segment_prompts(
    client: BaseClient, file: bytes, prompts: Sequence[Prompt], max_objects: int
) -> list[Segmentation]:
    """Return the masks of prompts, in requests of at most `max_objects`."""
    fields = [request_fields(prompt, f"prompts[{index}]") for index, prompt in enumerate(prompts)]
    masks: list[Segmentation] = []
    for start in range(0, len(fields), max_objects):
        part = fields[start : start + max_objects]
        masks += await client._segment(file, len(part), prompts=part, segmented_image="none")
    return masks


async def segment_shapes(
    client: BaseClient, file: bytes, request: Mapping[str, Any], max_objects: int
) -> tuple[tuple[int, int], list[Segmentation], list[dict[str, Any]]]:
    """Segment the boxes and points of an image.

    Args:
        client: client of either kind.
        file: the image file.
        request: `shapes`, each x0, y0, x1, y1 or x, y; `relative`, True if they are parts of width and height;
            `size_wh`, the size that they are for, or None.
        max_objects: maximum number of prompts per request.

    Returns:
        Width and height of the displayed image; the masks; and for each shape the members of its COCO annotation, with
        `box_iou` (IoU of the mask's box and the given one, None for a point) and `note`; without a mask only `note`.

    Raises:
        ValueError: the image has another size, or Pillow cannot read it.
    """
    size_wh = displayed_wh(file)
    check_size(request, size_wh)
    scale = size_wh if request["relative"] else (1, 1)
    asked = [_prompt(np.reshape(shape, (-1, 2)) * scale, size_wh) for shape in request["shapes"]]
    masks = await segment_prompts(client, file, [prompt for prompt, _ in asked if prompt], max_objects)
    rest = iter(masks)
    return size_wh, masks, [_fields(prompt, next(rest), note) if prompt else {"note": note} for prompt, note in asked]


def check_size(request: Mapping[str, Any], size_wh: tuple[int, int]) -> None:
    """Raise `DatasetError` if the shapes of a request are for an image of another size than width and height."""
    expected = request["size_wh"]
    if expected and tuple(expected) != size_wh:
        sizes = "the data set says {} x {} pixels, but the displayed image has {} x {}"
        raise DatasetError(sizes.format(*expected, *size_wh))


def with_masks(detections: Detections, size_wh: tuple[int, int], found: Sequence[dict[str, Any]]) -> Detections:
    """Return supervision's detections with what `segment_shapes` has returned for their boxes."""
    masks = np.zeros((len(found), *size_wh[::-1]), bool)
    for plane, fields in zip(masks, found, strict=True):
        if "segmentation" in fields:
            plane[:] = rle_tools.decode(fields["segmentation"])
    scores = np.array([fields.get("score", 0.0) for fields in found])
    data = {"mask_score": scores, "box_iou": np.array([fields.get("box_iou", 0.0) for fields in found])}
    return replace(detections, mask=masks, data={**detections.data, **data, "note": [each["note"] for each in found]})


def _prompt(xy: Any, size_wh: tuple[int, int]) -> tuple[Prompt | None, str]:
    """Return the prompt for a shape, cut to the image, or None, and a note; xy: (2, 2) or (1, 2) pixels."""
    inside = xy.clip(0, size_wh)
    is_cut = bool((np.abs(inside - xy) > MAX_ROUNDING).any())
    if len(xy) == 1:
        return (None, "outside of the image") if is_cut else (Prompt(pos_coords=inside), "")
    if not (inside[1] > inside[0]).all():
        return None, "outside of the image" if (xy[1] > xy[0]).all() else "the box is empty"
    return Prompt(box=inside.ravel()), "cut to the image" if is_cut else ""


def _fields(prompt: Prompt, mask: Segmentation, note: str) -> dict[str, Any]:
    if not mask.area:
        return {"note": "the mask is empty"}
    if prompt.box is None:
        return {**coco_fields(mask), "box_iou": None, "note": note}
    x0, y0, x1, y1 = prompt.box
    ((iou,),) = rle_tools.iou([[*mask.bbox_xywh]], [[x0, y0, x1 - x0, y1 - y0]], [0])
    return {**coco_fields(mask), "box_iou": round(float(iou), 4), "note": note}
