"""Keyword arguments of the calls."""

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from mobile_sam_client._prompts import Region

PictureStyle = Literal["overlay", "cutout", "none"]
"""`overlay`: objects tinted and outlined; `cutout`: RGBA, transparent outside the objects; `none`:
no picture."""


class MaskOptions(TypedDict, total=False):
    """Options of `segment` and `segment_many`."""

    multimask_output: bool
    """True to compute three candidate masks; the best is returned, with all in `candidates`."""
    low_res_mask: bool
    """True to return the mask's logits as `low_res_mask`."""
    mask_threshold: float | None
    """Logit above which a pixel belongs to the mask, -20 to 20; default 0."""
    min_mask_region_area: int | None
    """Holes and islands with fewer pixels than this are filled and removed; default 0."""
    clip: bool | None
    """True to cut boxes and the region to the image, and to move points outside of it to its
    nearest edge, which is an error otherwise. `clipped` of a result names what was changed. A box
    without a part in the image stays an error."""
    region: Region | None
    """Part of the image to encode at its full resolution, for small objects, or `auto` for one
    around all prompts. It is rounded outwards: a `mask_input` needs the `region` of its result."""


class EverythingOptions(TypedDict, total=False):
    """Options of `everything`, as of Segment Anything's automatic mask generator.

    None: the service's default.
    """

    points_per_side: int | None
    """Points along each side of the grid, 1 to 64; default 32."""
    pred_iou_thresh: float | None
    """Minimum score of a mask; the default depends on the weights, 0.88 for the official ones."""
    stability_score_thresh: float | None
    """Minimum `stability_score` of a mask; the default depends on the weights, 0.95 for the
    official ones."""
    stability_score_offset: float | None
    """How far the threshold is raised and lowered for `stability_score`, in logits; default 1."""
    box_nms_thresh: float | None
    """Box IoU above which the mask with the lower score is dropped as a duplicate; default 0.7."""
    crop_n_layers: int | None
    """Layers of enlarged crops to segment as well, 0 to 3; layer i has 4^i crops; default 0."""
    crop_nms_thresh: float | None
    """The same as `box_nms_thresh` between crops; default 0.7."""
    crop_overlap_ratio: float | None
    """Overlap of the crops in layer 1 as a fraction of the image's shorter side; default 0.34."""
    crop_n_points_downscale_factor: int | None
    """`points_per_side` is divided by this in each further layer; default 1."""
    min_mask_region_area: int | None
    """Holes and islands with fewer pixels than this are filled and removed; default 0."""


def check_options(call: str, given: Mapping[str, Any], options: type[Any]) -> None:
    """Raise `TypeError`, as Python does, for an option that a call does not have."""
    unknown = given.keys() - options.__annotations__.keys()
    if unknown:
        raise TypeError(f"{call}() got an unexpected keyword argument {min(unknown)!r}")
