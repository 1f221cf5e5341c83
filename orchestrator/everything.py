"""A batch of automatic masks: a grid of clicks on one crop of an image, and the masks that reach
the thresholds.

The service sends as many batches at once as this model has processes, and combines the records. So
clicks wait for one batch of each process at most, not for a whole image, and a client that
disconnects costs only the batches at work. Steps and thresholds are taken from Segment Anything's
automatic mask generator (https://github.com/facebookresearch/segment-anything,
`automatic_mask_generator.py` and `utils/amg.py`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from orchestrator.call import ModelRequest, Part
from orchestrator.costs import check_batch
from orchestrator.found import StableMask
from orchestrator.masks import PixelMask, remove_small_regions
from orchestrator.pipeline import Pipeline, Prompts
from orchestrator.reduced import Reduction
from orchestrator.regions import Box, check, full_image
from orchestrator.segment import blank_image
from orchestrator.stages import Stage
from orchestrator.tensors import GRID_POINTS_XY, POSITIVE, RECORDS

OUTPUTS = (RECORDS.name,)
"""Name of the output with the part that `records` returns."""
EDGE_MARGIN_PIXELS = 20
"""If a mask's box comes this close to the edge of a crop, the mask is probably truncated there."""


def records(pipeline: Pipeline, request: ModelRequest) -> tuple[Part]:
    """Return JSON: `masks`, the records of a batch, and the `engine` as answers name it."""
    pipeline.check_accepted(np.full((1, 1), POSITIVE, np.int32))
    options = {**pipeline.thresholds, **request.call.options}
    points_xy = request.read(GRID_POINTS_XY.name)
    assert points_xy is not None  # not optional in config.pbtxt
    image = pipeline.embeddings.open(request)
    x0, y0, x1, y1 = map(int, options["crop_box"])
    crop = x0, y0, x1, y1
    check(crop, image.size_hw, "crop_box")
    reduction = image.reduction
    if reduction:
        options["min_mask_region_area"] = round(
            options["min_mask_region_area"] / reduction.factor**2
        )
    cells = image.in_grid(crop)
    cells_hw = cells[3] - cells[1], cells[2] - cells[0]
    check_batch(
        len(points_xy),
        image.grid_hw,
        cells_hw,
        remove_small_regions=bool(options["min_mask_region_area"]),
    )
    part = pipeline.embeddings.encode(pipeline.embeddings.crop(image, crop))
    masks_kept = []
    for mask in pipeline.stable_masks(part, points_xy, options):
        with part.stages(Stage.RECORD):
            mask_record = record(
                mask,
                points_xy[mask.point],
                crop=cells,
                size_hw=image.grid_hw,
                options=options,
                reduction=reduction,
            )
        if mask_record is not None:
            masks_kept.append(mask_record)
    return ([orjson.dumps({"engine": pipeline.identity["engine"], "masks": masks_kept})],)


def warm_up(pipeline: Pipeline, shapes: Mapping[str, Sequence[int]]) -> None:
    """Run the decoder on a batch of points: the first request does not wait, and the engine keeps
    such a run's memory.

    Args:
        pipeline: the pipeline.
        shapes: shapes of the embedding's tensors, which consist of zeros.

    Raises:
        DecoderError: the decoder returned values that are not finite.
    """
    pipeline.stages.begin(counts=False)
    points = np.zeros((max(1, pipeline.decoder_batch // 2), 1, 2), np.float32)
    labels = np.full(points.shape[:2], POSITIVE, np.int32)
    list(pipeline.decode(blank_image(shapes), Prompts(points, labels), candidates=True))


def is_truncated(
    box: Box, crop: Box, size_hw: tuple[int, int], margin: float = EDGE_MARGIN_PIXELS
) -> bool:
    """Return whether a mask's box is near an edge of its crop that is not an edge of the image.

    All in image pixels.
    """
    for side, crop_edge, image_edge in zip(box, crop, full_image(size_hw), strict=True):
        if abs(side - crop_edge) <= margin < abs(side - image_edge):
            return True
    return False


def record(
    found: StableMask,
    point_xy: npt.NDArray[np.float32],
    *,
    crop: Box,
    size_hw: tuple[int, int],
    options: dict[str, Any],
    reduction: Reduction | None = None,
) -> dict[str, Any] | None:
    """Return the generator's record of a mask, None if the crop truncates the mask.

    Beside Segment Anything's keys it has two for the final steps over all records: `box` (xyxy in
    the image, before small regions were removed) and `changed` (whether any were removed).

    Args:
        found: the mask.
        point_xy: (2,), the click, pixels of the image.
        crop: x0, y0, x1, y1 of the crop, pixels of the image.
        size_hw: height and width of the image.
        options: `min_mask_region_area`, pixels: smaller holes are filled, smaller islands removed;
            0: neither.
        reduction: grid of an image that is worked on at a smaller size. All other arguments but the
            click are in cells of the grid then, and so is the record's segmentation; the rest of
            the record is in pixels of the image.
    """
    mask = found.mask
    left, top = found.corner_xy[0] + crop[0], found.corner_xy[1] + crop[1]  # in the image
    box = _moved(mask.box_xyxy, left, top)
    margin = EDGE_MARGIN_PIXELS / reduction.factor if reduction else EDGE_MARGIN_PIXELS
    if is_truncated(box, crop, size_hw, margin):
        return None
    changed, changed_box = False, box
    if options["min_mask_region_area"]:
        whole = np.zeros(size_hw, bool)
        whole[box[1] : box[3], box[0] : box[2]] = mask.in_box()
        tidied, changed = remove_small_regions(whole, options["min_mask_region_area"])
        mask, left, top = PixelMask(tidied), 0, 0
        changed_box = mask.box_xyxy
    segmentation, area = mask.rle((left, top), size_hw), mask.area
    x0, y0, x1, y1 = changed_box
    if reduction:
        area = reduction.area(mask.in_box(), (x0, y0))
        x0, y0, x1, y1 = reduction.box(changed_box)
        box, crop = _image_box(reduction, box), _image_box(reduction, crop)
    return {
        "segmentation": segmentation,
        "area": area,
        "bbox": [x0, y0, x1 - x0, y1 - y0],
        "predicted_iou": round(found.score, 4),
        "point_coords": [[float(point_xy[0]), float(point_xy[1])]],
        "stability_score": round(found.stability, 4),
        "crop_box": [crop[0], crop[1], crop[2] - crop[0], crop[3] - crop[1]],
        "box": box,
        "changed": changed,
    }


def _image_box(reduction: Reduction, cells_xyxy: Box) -> Box:
    x0, y0, x1, y1 = reduction.box(cells_xyxy)
    return x0, y0, x1, y1


def _moved(box_xyxy: Box, right: int, down: int) -> Box:
    x0, y0, x1, y1 = box_xyxy
    return x0 + right, y0 + down, x1 + right, y1 + down
