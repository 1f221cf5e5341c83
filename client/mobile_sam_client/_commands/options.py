"""Options that several commands share, and groups of options that a command takes as one argument."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from mobile_sam_client import EverythingOptions
from mobile_sam_client._commands.prompts import region

IMAGES_HELP = "PNG, JPEG and WebP files; a quoted pattern such as `'photos/*.jpg'` is expanded; - is standard input."

Images = Annotated[list[Path], typer.Argument(metavar="IMAGE", help=IMAGES_HELP, show_default=False)]
REGION_HELP = "Part to encode at full resolution, for small objects; auto: around points and boxes."
Region = Annotated[Any | None, typer.Option(metavar="X0,Y0,X1,Y1", help=REGION_HELP, parser=region)]
CLIP_HELP = "Cut boxes to the image and move points outside of it to its edge; otherwise they are an error."
Clip = Annotated[bool, typer.Option("--clip", help=CLIP_HELP)]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]


def option(text: str, metavar: str | None = None, *names: str, **more: Any) -> Any:
    """Return an option that has no default, or whose text explains it."""
    return typer.Option(*names, metavar=metavar, help=text, show_default=False, **more)


def number(text: str, *names: str, **limits: Any) -> Any:
    return option(text, "N", *names, **limits)


MIN_AREA = number("Fill holes and remove islands of fewer pixels.", "--min-area", min=0)
GENERATOR_OPTIONS: dict[str, Any] = {
    "points_per_side": number(
        "Prompt with a grid of N x N points, by default 32: fewer are faster, more find smaller objects.", min=1, max=64
    ),
    "pred_iou_thresh": number(
        "Drop masks with a lower predicted IoU, by default 0.88 with the official weights.", min=0, max=1
    ),
    "stability_score_thresh": number(
        "Drop masks with a lower stability score, by default 0.95 with the official weights.", min=0, max=1
    ),
    "stability_score_offset": number("Shift of the threshold for the stability score, by default 1."),
    "box_nms_thresh": number(
        "Drop the lower-scored of two masks if their boxes' IoU exceeds this, by default 0.7.", min=0, max=1
    ),
    "crop_n_layers": number("Segment enlarged crops too, 4^i of them in layer i, by default no layers.", min=0, max=3),
    "crop_nms_thresh": number("The same as --box-nms-thresh between crops, by default 0.7.", min=0, max=1),
    "crop_overlap_ratio": number(
        "Overlap of crops as a part of the image's shorter side, by default 0.34.", min=0, max=1
    ),
    "crop_n_points_downscale_factor": number(
        "Divide the points per side by this factor in each layer of crops, by default 1.", min=1
    ),
    "min_mask_region_area": MIN_AREA,
}
"""Options for the fields of `EverythingOptions`, which has their types."""


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameters of a command that are groups of options: `EverythingOptions` and dataclasses."""
    signature = inspect.signature(command, eval_str=True)
    groups = {name: _members(parameter) for name, parameter in signature.parameters.items()}
    parameters = [member for members in groups.values() for member in members]

    @functools.wraps(command)
    def wrapper(**named: Any) -> None:
        for name, members in groups.items():
            if name not in named:
                group = signature.parameters[name].annotation
                named[name] = group(**{member.name: named.pop(member.name) for member in members})
        command(**named)

    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper


def _members(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """Return the options of a group, or the parameter itself."""
    kind: Any = parameter.annotation
    if kind is EverythingOptions:
        types = {name: Annotated[each, GENERATOR_OPTIONS[name]] for name, each in get_type_hints(kind).items()}
        return [parameter.replace(name=name, annotation=each, default=None) for name, each in types.items()]
    return [*inspect.signature(kind).parameters.values()] if is_dataclass(parameter.annotation) else [parameter]
