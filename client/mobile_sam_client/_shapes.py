"""Masks of the boxes and points of an image, in requests of limited size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from pycocotools import mask as rle_tools

from mobile_sam_client._datasets.values import check_size
from mobile_sam_client._exports import coco_fields
from mobile_sam_client._images import displayed_wh
from mobile_sam_client._prompts import Prompt, request_fields

if TYPE_CHECKING:
    from supervision import Detections

    from mobile_sam_client._base import BaseClient
    from mobile_sam_client._results import Segmentation

MAX_ROUNDING = 0.5
"""Pixels by which a shape may exceed the image without a note, because formats round
coordinates."""


async def segment_prompts(
    client: BaseClient,
    file: bytes,
    prompts: Sequence[Prompt],
    max_objects: int,
    *,
    clip: bool = False,
) -> list[Segmentation]:
    """Return the masks of prompts, in requests of at most `max_objects`.

    Args:
        client: client of either kind.
        file: the image file.
        prompts: the objects.
        max_objects: maximum number of prompts per request.
        clip: `clip` of `MaskOptions`.
    """
    # Numbered before they are split, so that errors name the prompt's position among all.
    objects = [request_fields(prompt, f"prompts[{index}]") for index, prompt in enumerate(prompts)]
    masks: list[Segmentation] = []
    for start in range(0, len(objects), max_objects):
        part = objects[start : start + max_objects]
        masks += await client._segment(
            file, len(part), prompts=part, segmented_image="none", clip=clip or None
        )
    return masks


async def segment_shapes(
    client: BaseClient, file: bytes, request: Mapping[str, Any], max_objects: int
) -> tuple[tuple[int, int], list[Segmentation], list[dict[str, Any]]]:
    """Segment the boxes and points of an image.

    Args:
        client: client of either kind.
        file: the image file.
        request: `shapes`, each x0, y0, x1, y1 or x, y; `relative`, True if they are parts of width
            and height; `size_wh`, the size that they are for, or None.
        max_objects: maximum number of prompts per request.

    Returns:
        Width and height of the displayed image; the masks; and for each shape the members of its
        COCO annotation, with `box_iou` (IoU of the mask's box and the given one, None for a point)
        and `note`; without a mask only `note`.

    Raises:
        ValueError: the image has another size, or Pillow cannot read it.
    """
    size_wh = displayed_wh(file)
    check_size(request, size_wh)
    scale = size_wh if request["relative"] else (1, 1)
    prompts_with_notes = []
    for shape in request["shapes"]:
        xy = np.reshape(shape, (-1, 2)) * scale
        prompts_with_notes.append(_prompt(xy, size_wh))
    prompts = [prompt for prompt, _ in prompts_with_notes if prompt]
    masks = await segment_prompts(client, file, prompts, max_objects)
    remaining_masks = iter(masks)
    fields: list[dict[str, Any]] = []
    for prompt, note in prompts_with_notes:
        if prompt:
            fields.append(_fields(prompt, next(remaining_masks), note))
        else:
            fields.append({"note": note})
    return size_wh, masks, fields


def with_masks(
    detections: Detections, size_wh: tuple[int, int], fields: Sequence[dict[str, Any]]
) -> Detections:
    """Return supervision's detections with masks.

    Args:
        detections: boxes in an image.
        size_wh: width and height of the image.
        fields: what `segment_shapes` has returned for each box.
    """
    width, height = size_wh
    masks = np.zeros((len(fields), height, width), bool)
    for plane, annotation in zip(masks, fields, strict=True):
        if "segmentation" in annotation:
            plane[:] = rle_tools.decode(annotation["segmentation"])
    data = {
        **detections.data,
        "mask_score": np.array([annotation.get("score", 0.0) for annotation in fields]),
        "box_iou": np.array([annotation.get("box_iou", 0.0) for annotation in fields]),
        "note": [annotation["note"] for annotation in fields],
    }
    return replace(detections, mask=masks, data=data)


def _prompt(xy: Any, size_wh: tuple[int, int]) -> tuple[Prompt | None, str]:
    """Return the prompt for a shape, cut to the image, and a note; no prompt if nothing is left.

    Args:
        xy: (2, 2) corners of a box, or (1, 2) a point, x then y, in pixels.
        size_wh: width and height of the image.
    """
    inside = xy.clip(0, size_wh)
    is_cut = bool((np.abs(inside - xy) > MAX_ROUNDING).any())
    if len(xy) == 1:
        if is_cut:
            return None, "outside of the image"
        return Prompt(pos_coords=inside), ""
    if not (xy[1] > xy[0]).all():
        return None, "the box is empty"
    if not (inside[1] > inside[0]).all():
        return None, "outside of the image"
    return Prompt(box=inside.ravel()), "cut to the image" if is_cut else ""


def _fields(prompt: Prompt, mask: Segmentation, note: str) -> dict[str, Any]:
    """Return the members of the COCO annotation of a mask."""
    if not mask.area:
        return {"note": "the mask is empty"}
    box_iou = None
    if prompt.box is not None:
        x0, y0, x1, y1 = prompt.box
        ((iou,),) = rle_tools.iou([[*mask.bbox_xywh]], [[x0, y0, x1 - x0, y1 - y0]], [0])
        box_iou = round(float(iou), 4)
    return {**coco_fields(mask), "box_iou": box_iou, "note": note}
