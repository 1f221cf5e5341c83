"""Options of Segment Anything's automatic mask generator, for the commands that segment everything."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer


def _option(kind: Any, text: str, *names: str, **limits: Any) -> Any:
    option = typer.Option(*names, metavar="N", help=text, show_default=False, **limits)
    return Annotated[kind | None, option]


GENERATOR_OPTIONS = {
    "points_per_side": _option(
        int,
        "Prompt with a grid of N x N points, by default 32: fewer are faster, more find smaller objects.",
        min=1,
        max=64,
    ),
    "pred_iou_thresh": _option(
        float, "Drop masks with a lower predicted IoU, by default 0.88 with the official weights.", min=0, max=1
    ),
    "stability_score_thresh": _option(
        float, "Drop masks with a lower stability score, by default 0.95 with the official weights.", min=0, max=1
    ),
    "stability_score_offset": _option(float, "Shift of the threshold for the stability score, by default 1."),
    "box_nms_thresh": _option(
        float, "Drop the lower-scored of two masks whose boxes have a higher IoU, by default 0.7.", min=0, max=1
    ),
    "crop_n_layers": _option(
        int, "Segment enlarged crops too, 4^i of them in layer i, by default no layers.", min=0, max=3
    ),
    "crop_nms_thresh": _option(float, "The same as --box-nms-thresh between crops, by default 0.7.", min=0, max=1),
    "crop_overlap_ratio": _option(
        float, "Overlap of crops as a part of the image's shorter side, by default 0.34.", min=0, max=1
    ),
    "crop_n_points_downscale_factor": _option(
        int, "Divide the points per side by this factor in each layer of crops, by default 1.", min=1
    ),
    "min_mask_region_area": _option(int, "Fill holes and remove islands of fewer pixels.", "--min-area", min=0),
}
"""Annotations of the options by field of the request."""


def generator_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the generator's options to a command, which receives those that were given as `parameters`."""

    @functools.wraps(command)
    def wrapper(*arguments: Any, **named: Any) -> None:
        given = {name: named.pop(name) for name in GENERATOR_OPTIONS}
        parameters = {name: value for name, value in given.items() if value is not None}
        command(*arguments, **named, parameters=parameters)

    signature = inspect.signature(command, eval_str=True)
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in GENERATOR_OPTIONS.items()
    ]
    parameters = []
    for parameter in signature.parameters.values():
        parameters += options if parameter.name == "parameters" else [parameter]
    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper
